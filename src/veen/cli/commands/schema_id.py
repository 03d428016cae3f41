"""``veen schema-id``: the id of a schema, and the fields of a built-in one."""

from typing import Annotated, Any

import typer

from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.objects import labels
from veen.overlays import registry


@command
def schema_id_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the schema, for example wallet.open.v1.")
    ],
) -> None:
    """Print the id of a schema.

    It is H(name) for schemas of the protocol, and H("veen/schema:" + name) for others.
    """
    fields: dict[str, Any] = {"schema_id": labels.schema_id(name).hex()}
    if common.json:
        schema = registry.schemas().get(name)
        fields |= {"name": name, "known": schema is not None}
        if schema is not None:
            fields["fields"] = [
                {"name": item.name, "type": item.kind.name, "optional": item.optional}
                for item in schema.fields
            ]
        print_result(fields, as_json=True)
    else:
        typer.echo(fields["schema_id"])
