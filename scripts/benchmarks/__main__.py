"""The command line of the benchmarks."""

import typer

from scripts.benchmarks import compiler, inprocess, step

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def bench() -> None:
    """Measure what Signalbox promises, beside simple alternatives."""


for module in (compiler, inprocess, step):
    module.add_to(app)

if __name__ == "__main__":
    app(prog_name="bench")
