"""Aggregation rules, one small file each; ``from smartfl.aggregators import Krum`` finds any of them."""

from typing import TYPE_CHECKING

from smartfl.lazy import lazy

if TYPE_CHECKING:
    from smartfl.aggregators.abavg import ABAvg as ABAvg
    from smartfl.aggregators.base import Aggregator as Aggregator
    from smartfl.aggregators.bucketing import Bucketing as Bucketing
    from smartfl.aggregators.bulyan import Bulyan as Bulyan
    from smartfl.aggregators.centered_clipping import CenteredClipping as CenteredClipping
    from smartfl.aggregators.clipping import Clipping as Clipping
    from smartfl.aggregators.dnc import DnC as DnC
    from smartfl.aggregators.fedavg import FedAvg as FedAvg
    from smartfl.aggregators.fedavgm import FedAvgM as FedAvgM
    from smartfl.aggregators.fedbe import FedBE as FedBE
    from smartfl.aggregators.feddf import FedDF as FedDF
    from smartfl.aggregators.fednova import FedNova as FedNova
    from smartfl.aggregators.fedopt import FedAdagrad as FedAdagrad
    from smartfl.aggregators.fedopt import FedAdam as FedAdam
    from smartfl.aggregators.fedopt import FedYogi as FedYogi
    from smartfl.aggregators.finetune import Finetune as Finetune
    from smartfl.aggregators.fltrust import FLTrust as FLTrust
    from smartfl.aggregators.fools_gold import FoolsGold as FoolsGold
    from smartfl.aggregators.geometric_median import GeometricMedian as GeometricMedian
    from smartfl.aggregators.ida import IDA as IDA
    from smartfl.aggregators.krum import Krum as Krum
    from smartfl.aggregators.median import Median as Median
    from smartfl.aggregators.momentum import Momentum as Momentum
    from smartfl.aggregators.multi_krum import MultiKrum as MultiKrum
    from smartfl.aggregators.nearest_neighbour_mixing import NearestNeighbourMixing as NearestNeighbourMixing
    from smartfl.aggregators.norm_clipping import NormClipping as NormClipping
    from smartfl.aggregators.reestimated import Reestimated as Reestimated
    from smartfl.aggregators.residual_reweighting import ResidualReweighting as ResidualReweighting
    from smartfl.aggregators.sageflow import Sageflow as Sageflow
    from smartfl.aggregators.server_only import ServerOnly as ServerOnly
    from smartfl.aggregators.sfedavg import SFedAvg as SFedAvg
    from smartfl.aggregators.sign_majority import SignMajority as SignMajority
    from smartfl.aggregators.smartfl import SmartFL as SmartFL
    from smartfl.aggregators.smartfl_literal import SmartFLLiteral as SmartFLLiteral
    from smartfl.aggregators.smartfl_unlabelled import SmartFLUnlabelled as SmartFLUnlabelled
    from smartfl.aggregators.smartfl_unlabelled_literal import SmartFLUnlabelledLiteral as SmartFLUnlabelledLiteral
    from smartfl.aggregators.trimmed_mean import TrimmedMean as TrimmedMean
    from smartfl.aggregators.uniform import Uniform as Uniform
    from smartfl.aggregators.zeno import Zeno as Zeno

_HOMES = {
    "ABAvg": "smartfl.aggregators.abavg",
    "Aggregator": "smartfl.aggregators.base",
    "Bucketing": "smartfl.aggregators.bucketing",
    "Bulyan": "smartfl.aggregators.bulyan",
    "CenteredClipping": "smartfl.aggregators.centered_clipping",
    "Clipping": "smartfl.aggregators.clipping",
    "DnC": "smartfl.aggregators.dnc",
    "FLTrust": "smartfl.aggregators.fltrust",
    "FedAdagrad": "smartfl.aggregators.fedopt",
    "FedAdam": "smartfl.aggregators.fedopt",
    "FedAvg": "smartfl.aggregators.fedavg",
    "FedAvgM": "smartfl.aggregators.fedavgm",
    "FedBE": "smartfl.aggregators.fedbe",
    "FedDF": "smartfl.aggregators.feddf",
    "FedNova": "smartfl.aggregators.fednova",
    "FedYogi": "smartfl.aggregators.fedopt",
    "Finetune": "smartfl.aggregators.finetune",
    "FoolsGold": "smartfl.aggregators.fools_gold",
    "GeometricMedian": "smartfl.aggregators.geometric_median",
    "IDA": "smartfl.aggregators.ida",
    "Krum": "smartfl.aggregators.krum",
    "Median": "smartfl.aggregators.median",
    "Momentum": "smartfl.aggregators.momentum",
    "MultiKrum": "smartfl.aggregators.multi_krum",
    "NearestNeighbourMixing": "smartfl.aggregators.nearest_neighbour_mixing",
    "NormClipping": "smartfl.aggregators.norm_clipping",
    "Reestimated": "smartfl.aggregators.reestimated",
    "ResidualReweighting": "smartfl.aggregators.residual_reweighting",
    "SFedAvg": "smartfl.aggregators.sfedavg",
    "Sageflow": "smartfl.aggregators.sageflow",
    "ServerOnly": "smartfl.aggregators.server_only",
    "SignMajority": "smartfl.aggregators.sign_majority",
    "SmartFL": "smartfl.aggregators.smartfl",
    "SmartFLLiteral": "smartfl.aggregators.smartfl_literal",
    "SmartFLUnlabelled": "smartfl.aggregators.smartfl_unlabelled",
    "SmartFLUnlabelledLiteral": "smartfl.aggregators.smartfl_unlabelled_literal",
    "TrimmedMean": "smartfl.aggregators.trimmed_mean",
    "Uniform": "smartfl.aggregators.uniform",
    "Zeno": "smartfl.aggregators.zeno",
}

__getattr__ = lazy(__name__, _HOMES)

__all__ = [
    "IDA",
    "ABAvg",
    "Aggregator",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "Clipping",
    "DnC",
    "FLTrust",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBE",
    "FedDF",
    "FedNova",
    "FedYogi",
    "Finetune",
    "FoolsGold",
    "GeometricMedian",
    "Krum",
    "Median",
    "Momentum",
    "MultiKrum",
    "NearestNeighbourMixing",
    "NormClipping",
    "Reestimated",
    "ResidualReweighting",
    "SFedAvg",
    "Sageflow",
    "ServerOnly",
    "SignMajority",
    "SmartFL",
    "SmartFLLiteral",
    "SmartFLUnlabelled",
    "SmartFLUnlabelledLiteral",
    "TrimmedMean",
    "Uniform",
    "Zeno",
]


def __dir__() -> list[str]:
    return __all__
