"""Parses Varuna's stage_to_rank_map: the ranks of each stage, separated by commas, with a semicolon after each stage."""

from __future__ import annotations


def ranks_of(stage_to_rank_map: str) -> list[list[int]]:
    """Returns the ranks of each stage, by replica. Throws ValueError if an entry is not a number, if stages have different
    numbers of replicas, or if a rank is missing or occurs twice."""
    texts = stage_to_rank_map.strip().removesuffix(";").split(";")
    where = f"stage_to_rank_map '{stage_to_rank_map}'"
    try:
        stages = [[int(rank) for rank in text.split(",")] for text in texts]
    except ValueError:
        raise ValueError(f"{where}: expected ranks separated by commas, with a semicolon after each stage, such as "
                         f"0,2;1,3;") from None
    if len({len(ranks) for ranks in stages}) > 1:
        raise ValueError(f"{where}: stages have {', '.join(str(len(ranks)) for ranks in stages)} ranks; all stages need the "
                         f"same number, one rank per replica")
    found = sorted(rank for ranks in stages for rank in ranks)
    if found != list(range(len(found))):
        raise ValueError(f"{where}: names the ranks {', '.join(map(str, found))}; each of 0 to {len(found) - 1} must occur "
                         "exactly once")
    return stages


def default_map(stages: int, replicas: int) -> str:
    """Returns the map with stage = rank mod stages and replica = rank div stages."""
    return "".join(",".join(str(d * stages + s) for d in range(replicas)) + ";" for s in range(stages))


def get_varuna_config(stage_to_rank_map: str) -> tuple[int, int]:
    """Returns (stages, replicas)."""
    stages = ranks_of(stage_to_rank_map)
    return len(stages), len(stages[0])


def get_this_rank_config_varuna(stage_to_rank_map: str, rank: int) -> tuple[int, int]:
    """Returns (stage, replica) of a rank. Throws ValueError for a rank that the map doesn't contain."""
    for stage, ranks in enumerate(ranks_of(stage_to_rank_map)):
        if rank in ranks:
            return stage, ranks.index(rank)
    raise ValueError(f"stage_to_rank_map '{stage_to_rank_map}' has no rank {rank}")
