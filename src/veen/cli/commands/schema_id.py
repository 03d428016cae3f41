"""``veen schema-id``: the id of a schema, and what it is if it is one of ours."""

from typing import Annotated, Any

import typer

from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.objects import labels
from veen.overlays import registry


@command
def schema_id_command(
    name: Annotated[str, typer.Argument(help="Name of the schema, as wallet.open.v1.")],
) -> None:
    """Print the id of a schema: H(name) in the protocol's families, H("veen/schema:" + name) for others."""
    found: dict[str, Any] = {"schema_id": labels.schema_id(name).hex()}
    if common.json:
        schema = registry.schemas().get(name)
        found |= {"name": name, "known": schema is not None}
        if schema is not None:
            found["fields"] = [
                {"name": item.name, "type": item.kind.name, "optional": item.optional}
                for item in schema.fields
            ]
        print_result(found, as_json=True)
    else:
        typer.echo(found["schema_id"])
