// Reads {name: definition} as JSON from stdin, writes {name: fault} for those that asl-validator refuses.
// The first argument is the folder whose node_modules holds it.
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");

const loaded = createRequire(`${process.argv[2]}/`)("asl-validator");
const validate = loaded.default ?? loaded;
const faults = {};
for (const [name, definition] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const { isValid, errorsText } = validate(definition);
  if (!isValid) faults[name] = errorsText("\n");
}
process.stdout.write(JSON.stringify(faults));
