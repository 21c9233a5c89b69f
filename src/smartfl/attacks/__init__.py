"""Attacks, one small file each; ``from smartfl.attacks import LabelFlip`` finds any of them."""

from typing import TYPE_CHECKING

from smartfl.lazy import lazy

if TYPE_CHECKING:
    from smartfl.attacks.adaptive import Adaptive as Adaptive
    from smartfl.attacks.alie import ALIE as ALIE
    from smartfl.attacks.backdoor import Backdoor as Backdoor
    from smartfl.attacks.base import Attack as Attack
    from smartfl.attacks.base import Knowledge as Knowledge
    from smartfl.attacks.crash import Crash as Crash
    from smartfl.attacks.fang import FangMedian as FangMedian
    from smartfl.attacks.fang import FangTrimmedMean as FangTrimmedMean
    from smartfl.attacks.fang_krum import FangKrum as FangKrum
    from smartfl.attacks.gaussian import Gaussian as Gaussian
    from smartfl.attacks.ipm import IPM as IPM
    from smartfl.attacks.label_flip import LabelFlip as LabelFlip
    from smartfl.attacks.mimic import Mimic as Mimic
    from smartfl.attacks.min_max import MinMax as MinMax
    from smartfl.attacks.min_max import MinSum as MinSum
    from smartfl.attacks.omniscient import Omniscient as Omniscient
    from smartfl.attacks.sign_flip import SignFlip as SignFlip

_HOMES = {
    "ALIE": "smartfl.attacks.alie",
    "Adaptive": "smartfl.attacks.adaptive",
    "Attack": "smartfl.attacks.base",
    "Backdoor": "smartfl.attacks.backdoor",
    "Crash": "smartfl.attacks.crash",
    "FangKrum": "smartfl.attacks.fang_krum",
    "FangMedian": "smartfl.attacks.fang",
    "FangTrimmedMean": "smartfl.attacks.fang",
    "Gaussian": "smartfl.attacks.gaussian",
    "IPM": "smartfl.attacks.ipm",
    "Knowledge": "smartfl.attacks.base",
    "LabelFlip": "smartfl.attacks.label_flip",
    "Mimic": "smartfl.attacks.mimic",
    "MinMax": "smartfl.attacks.min_max",
    "MinSum": "smartfl.attacks.min_max",
    "Omniscient": "smartfl.attacks.omniscient",
    "SignFlip": "smartfl.attacks.sign_flip",
}

__getattr__ = lazy(__name__, _HOMES)

__all__ = [
    "ALIE",
    "IPM",
    "Adaptive",
    "Attack",
    "Backdoor",
    "Crash",
    "FangKrum",
    "FangMedian",
    "FangTrimmedMean",
    "Gaussian",
    "Knowledge",
    "LabelFlip",
    "Mimic",
    "MinMax",
    "MinSum",
    "Omniscient",
    "SignFlip",
]


def __dir__() -> list[str]:
    return __all__
