"""What a rule must return; everything else is refused here, once for all rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from smartfl.errors import UserError
from smartfl.types import Aggregate, Updates


def guarded(result: Any, rule: Callable[..., Any], updates: Updates) -> Aggregate:
    """``result`` of ``rule``, if it is an aggregate of ``updates``; the global model stays where it is not finite.

    A result of another kind is a mistake in the rule, which is named with its file and line.
    """
    if fault := _fault(result, updates):
        raise UserError(f"{_described(rule)} must return an Aggregate: {fault}")
    assert isinstance(result, Aggregate)
    if _is_finite(result.vector) and (result.coefficients is None or _is_finite(result.coefficients)):
        return result
    event = "the rule's result is not finite: the global model is kept"
    zeros = None if result.coefficients is None else torch.zeros_like(result.coefficients)
    return replace(result, vector=updates.origin.clone(), coefficients=zeros, events=(*result.events, event))


def _is_finite(values: Tensor) -> bool:
    """Without a temporary of their size: a finite sum has finite terms; finite terms may have a sum that overflows."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def _fault(result: Any, updates: Updates) -> str | None:
    """What is wrong with the kind of a result; None if nothing is."""
    if not isinstance(result, Aggregate):
        return f"it returned {_a(result)}"
    vector, coefficients = result.vector, result.coefficients
    if not isinstance(vector, Tensor) or not vector.is_floating_point():
        return f"its vector is {_a(vector)}, a tensor of real numbers is accepted"
    if vector.shape != updates.origin.shape:
        return f"its vector has shape {tuple(vector.shape)}, {tuple(updates.origin.shape)} is accepted"
    if coefficients is None:
        return None
    if not isinstance(coefficients, Tensor):
        return f"its coefficients are {_a(coefficients)}, a tensor or None is accepted"
    if coefficients.shape != (len(updates),):
        return f"its coefficients have shape {tuple(coefficients.shape)}, ({len(updates)},) is accepted"
    return None


def _a(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _described(rule: Callable[..., Any]) -> str:
    """The rule with file and line of the code that computes it."""
    owner = getattr(rule, "__self__", rule)
    kind = type(owner)
    function = getattr(kind, "aggregate", None) or vars(kind).get("__call__")
    name = f"rule '{kind.__name__}'"
    if inspect.isfunction(rule):
        function, name = rule, f"rule '{rule.__name__}'"
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return name if code is None else f"{name} ({code.co_filename}, line {code.co_firstlineno})"
