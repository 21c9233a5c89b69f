"""SmartFL rebuilt: one objective, one search, then how far to step (the parts of ``rule.SmartFLNext``)."""

from smartfl.aggregators.smartfl_next.rule import SmartFLNext as SmartFLNext
