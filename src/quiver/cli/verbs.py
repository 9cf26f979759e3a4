"""Groups of commands that read as people say them: `quiver groups orders` lists, in either order.

The verb may stand first (`groups pause orders billing`), after the topic (`groups orders pause
billing`), or nowhere (`groups orders`): then it is `list`.
"""

from typing import Any, Final

from typer.core import TyperGroup

GIVEN: Final = "quiver.cli.verbs.given"  # of a context: the words that no verb was among


class CommandVerbs(TyperGroup):
    """A group whose first word need not be the verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb first, and let the group do what it always does."""
        words = self._words(args)
        verb = next((at for at in words[:2] if args[at] in self.commands), None)
        if verb is not None:
            args = [args[verb], *args[:verb], *args[verb + 1 :]]
        elif ctx.resilient_parsing:  # the shell completes: see `shell_complete`
            ctx.meta[GIVEN] = args
        elif not {"--help", "-h"}.intersection(args) and len(words) <= self._list_takes():
            args = ["list", *args]
        elif words:  # no verb of ours: let the group complain about the first word, not an option
            args = [args[words[0]]]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Verbs, and what may come after `list`, which can be left out."""
        items = super().shell_complete(ctx, incomplete)
        listing = self.commands["list"]
        args = ctx.meta.get(GIVEN, [])
        within = listing.make_context("list", list(args), parent=ctx, resilient_parsing=True)
        if incomplete.startswith("-"):
            return [*items, *listing.shell_complete(within, incomplete)]
        words = self._words(args)
        params = [param for param in listing.params if param.param_type_name == "argument"]
        if len(words) < len(params):
            items += params[len(words)].shell_complete(within, incomplete)
        return items

    def _words(self, args: list[str]) -> list[int]:
        """Where the arguments are that are neither options nor values of options."""
        valued = {
            name
            for command in self.commands.values()
            for param in command.params
            if param.param_type_name == "option" and not getattr(param, "is_flag", False)
            for name in param.opts
        }
        found = []
        after_option = False
        for at, word in enumerate(args):
            if word == "--":
                break
            if after_option:
                after_option = False
            elif word.startswith("-") and word != "-":
                after_option = word in valued
            else:
                found.append(at)
        return found

    def _list_takes(self) -> int:
        """How many arguments `list` can do with."""
        params = self.commands["list"].params
        return sum(1 for param in params if param.param_type_name == "argument")
