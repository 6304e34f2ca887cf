"""JSON Schemas as CEL types: objects become protobuf messages, so that the library itself finds unknown fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, wrappers_pb2

from shared.definition.names import CEL_RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["bool", "int64", "double", "string", "list", "map", "message", "dyn"]

_PACKAGE = "signalbox"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: dict[str, Kind] = {"boolean": "bool", "integer": "int64", "number": "double", "string": "string"}
_Proto = descriptor_pb2.FieldDescriptorProto
_PROTO = {
    "bool": _Proto.TYPE_BOOL,
    "int64": _Proto.TYPE_INT64,
    "double": _Proto.TYPE_DOUBLE,
    "string": _Proto.TYPE_STRING,
}
_CEL = {"bool": cel.Type.BOOL, "int64": cel.Type.INT, "double": cel.Type.DOUBLE, "string": cel.Type.STRING}
_WRAPPERS = {
    "bool": "google.protobuf.BoolValue",
    "int64": "google.protobuf.Int64Value",
    "double": "google.protobuf.DoubleValue",
    "string": "google.protobuf.StringValue",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A type: ``element`` of lists and maps, ``message`` name of objects, ``nullable`` scalars may be null."""

    kind: Kind
    element: Shape | None = None
    message: str = ""
    nullable: bool = False

    def cel(self) -> cel.Type:
        """Return the type as CEL declares variables."""
        if self.kind == "dyn":
            return cel.Type.DYN
        if self.kind == "message":
            return cel.Type(self.message)
        inner = self.element.cel() if self.element else cel.Type.DYN
        if self.kind == "list":
            return cel.Type.List(inner)
        if self.kind == "map":
            return cel.Type.Map(cel.Type.STRING, inner)
        return cel.Type(_WRAPPERS[self.kind]) if self.nullable else _CEL[self.kind]


DYN = Shape("dyn")
STRING = Shape("string")
ANY_OBJECT = Shape("map", DYN)


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in (struct_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    return pool


@dataclass(slots=True)
class TypeSpace:
    """The message types of one workflow. ``fields`` lists the field names of each message; equal ones are one."""

    pool: descriptor_pool.DescriptorPool = field(default_factory=_pool)
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    known: dict[tuple[tuple[str, Shape], ...], Shape] = field(default_factory=dict[Any, Shape])

    def of_schema(self, schema: Mapping[str, Any]) -> Shape:
        """Return the type of values that fit ``schema``; whatever CEL cannot describe is dynamic."""
        return self._of(schema, schema, ())

    def message(self, shapes: Mapping[str, Shape]) -> Shape:
        """Return a message type with these fields, or a dynamic map when a name cannot be a field of CEL."""
        if not all(_NAME.fullmatch(name) and name not in CEL_RESERVED for name in shapes):
            return ANY_OBJECT
        same = tuple(shapes.items())
        if same not in self.known:
            self.known[same] = self._new(shapes)
        return self.known[same]

    def _new(self, shapes: Mapping[str, Shape]) -> Shape:
        name = f"M{len(self.fields)}"
        try:
            self.pool.AddSerializedFile(_file(name, shapes).SerializeToString())
        except TypeError:
            return ANY_OBJECT
        full = f"{_PACKAGE}.{name}"
        self.fields[full] = tuple(shapes)
        return Shape("message", message=full)

    def _of(self, schema: Any, root: Mapping[str, Any], seen: tuple[str, ...]) -> Shape:
        schema, nullable, seen = _plain(schema, root, seen)
        kind = schema.get("type")
        if kind in _SCALARS:
            return Shape(_SCALARS[kind], nullable=nullable)
        if kind == "array" and not nullable:
            return Shape("list", self._of(schema.get("items", {}), root, seen))
        if kind == "object" and not nullable:
            return self._object(schema, root, seen)
        return DYN

    def _object(self, schema: dict[str, Any], root: Mapping[str, Any], seen: tuple[str, ...]) -> Shape:
        properties = schema.get("properties")
        others = schema.get("additionalProperties")
        if not isinstance(properties, dict) or not properties:
            return Shape("map", self._of(others, root, seen) if isinstance(others, dict) else DYN)
        if others not in (None, False):
            return ANY_OBJECT
        known = cast("dict[str, Any]", properties)
        return self.message({name: self._of(value, root, seen) for name, value in known.items()})


def variants(schema: Mapping[str, Any]) -> list[Any]:
    """Return the alternatives of an ``anyOf`` or ``oneOf``, or nothing."""
    found: Any = schema.get("anyOf") or schema.get("oneOf")
    return cast("list[Any]", found) if isinstance(found, list) else []


def resolve(schema: Any, root: Mapping[str, Any]) -> dict[str, Any] | None:
    """Follow a local ``$ref`` one step; None when it leads nowhere."""
    found: Any = root
    for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _plain(schema: Any, root: Mapping[str, Any], seen: tuple[str, ...]) -> tuple[dict[str, Any], bool, tuple[str, ...]]:
    """Return the schema with references followed and ``null`` taken out; whether null was; the references passed."""
    nullable = False
    while isinstance(schema, dict):
        schema = cast("dict[str, Any]", schema)
        if "$ref" in schema:
            reference = str(schema["$ref"])
            if reference in seen:
                return {}, False, seen
            schema, seen = resolve(schema, root), (*seen, reference)
        elif len(rest := [one for one in variants(schema) if one != {"type": "null"}]) == 1:
            nullable, schema = len(variants(schema)) > 1, rest[0]
        else:
            plain, more = _without_null(schema)
            return plain, nullable or more, seen
    return {}, False, seen


def _without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        rest = [kind for kind in cast("list[Any]", kinds) if kind != "null"]
        return {**schema, "type": rest[0] if len(rest) == 1 else None}, len(rest) < len(cast("list[Any]", kinds))
    if kinds is None:
        values = cast("list[Any]", schema.get("enum") or ([schema["const"]] if "const" in schema else []))
        return {**schema, "type": "string" if values and all(isinstance(one, str) for one in values) else None}, False
    return schema, False


def _file(name: str, shapes: Mapping[str, Shape]) -> descriptor_pb2.FileDescriptorProto:
    needed = ["google/protobuf/struct.proto", "google/protobuf/wrappers.proto"]
    needed += sorted({_file_name(shape) for given in shapes.values() for shape in _nested(given)})
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.{name}.proto", package=_PACKAGE, syntax="proto3", dependency=needed
    )
    message = file.message_type.add(name=name)
    for number, (title, shape) in enumerate(shapes.items(), 1):
        _add_field(message, title, number, shape)
    return file


def _nested(shape: Shape) -> list[Shape]:
    inner = _nested(shape.element) if shape.element else []
    return [shape, *inner] if shape.kind == "message" else inner


def _file_name(shape: Shape) -> str:
    return f"{shape.message}.proto"


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, shape: Shape) -> None:
    added = message.field.add(name=name, number=number, json_name=name, label=_Proto.LABEL_OPTIONAL)
    if shape.kind == "list":
        added.label = _Proto.LABEL_REPEATED
        _set_type(added, shape.element or DYN)
    elif shape.kind == "map":
        entry = message.nested_type.add(name=f"{_camel(name)}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Proto.LABEL_OPTIONAL, type=_Proto.TYPE_STRING)
        _set_type(entry.field.add(name="value", number=2, label=_Proto.LABEL_OPTIONAL), shape.element or DYN)
        added.label = _Proto.LABEL_REPEATED
        added.type = _Proto.TYPE_MESSAGE
        added.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
    else:
        _set_type(added, shape)


def _set_type(added: descriptor_pb2.FieldDescriptorProto, shape: Shape) -> None:
    if shape.kind in _PROTO and not shape.nullable:
        added.type = _PROTO[shape.kind]
        return
    added.type = _Proto.TYPE_MESSAGE
    named = shape.message if shape.kind == "message" else _WRAPPERS.get(shape.kind, "google.protobuf.Value")
    added.type_name = f".{named}"


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
