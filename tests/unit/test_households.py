"""Households: what is declared, what is checked, and what is drawn."""

import json

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate.candidates import neighbours
from dpbayes.evaluate.members import between_members, joined
from dpbayes.inference.coverage import size_ratio
from dpbayes.mechanisms import Households
from dpbayes.mechanisms.households.layout import COMPOSITION, GAP, Layout
from dpbayes.mechanisms.households.rows import rows_of
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.confidential import confidential_page
from dpbayes.pages.readers import public_page
from dpbayes.privacy.noise import StudyNoise
from dpbayes.publication.output import Work
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.formats.catalog import WRITTEN
from dpbayes.report.whole import bounds_of
from tests.households import NAMES, TREE, people, schema

AGE, CITY = TREE["columns"]["age"], TREE["columns"]["city"]
WITHOUT_ROLE = {name: column for name, column in TREE["columns"].items() if name != "role"}


def changed(**changes):
    return {"household": {**TREE["household"], **changes}}


def without(*keys):
    return {"household": {k: v for k, v in TREE["household"].items() if k not in keys}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (without("order"), "must name the identifier, the most members and the column"),
        (changed(extra=1), "household = .* must name"),
        (changed(most=1), "most = 1 must be a whole number from 2 to 30"),
        (changed(most=True), "most = True must be"),
        (changed(id="income"), "'income' must be declared with type = \"identifier\""),
        (changed(order="ages"), "order names 'ages', which is not declared .did you mean 'age'"),
        (
            changed(order="language"),
            "order = 'language' must be a column with type continuous or count",
        ),
        (changed(order="income"), "'income' differs by member"),
        (changed(columns=["age"]), "'age' differs by member"),
        (changed(columns="income"), "household: columns"),
        (changed(role="hours"), "role = 'hours' must be a column with levels"),
        (without("once"), "a `role` needs `once`"),
        (without("role"), "`once` needs a `role`"),
        (changed(once=["heads"]), "once names 'heads', which is no level of 'role'.*'head'"),
        (changed(rules=["child.age > partner.age"]), "must be about the head, members of one"),
        (changed(rules=["income > 3"]), "must be about the head, members of one"),
        (changed(rules=["head.agee > 3"]), "is not declared"),
        (changed(rules=[3]), "rules"),
        (changed(most=30, once=["head"]), "members by role can be .* combinations"),
        ({"cluster": {"column": "hh", "most": 5}}, "cluster cannot stand beside it"),
        ({"keep": ["age ~ hours"]}, "'age' is no column of the household, .*write head.age"),
        ({"keep": ["child.hours ~ child.agee"]}, "'child.agee' is .*did you mean 'child.age'"),
        ({"keep": ["child.hours ~ partner.age"]}, "or of members of one other role beside it"),
        ({"keep": ["income ~ child.age"]}, "the outcome must be a column of 'child'"),
        ({"keep": ["child.age ~ head.age"]}, "'child.age' puts members in order"),
        ({"keep": ["child.hours ~ 1"]}, "has no covariate"),
        ({"keep": ["income ~ head.hours", "head.hours ~ income"]}, "outcomes of each other"),
    ],
)
def test_declarations_that_are_refused(changes, message):
    with pytest.raises(dpb.SchemaError, match=message):
        dpb.Synthesizer(schema(**changes), Households(1.0))


def test_a_public_column_is_refused():
    columns = {**TREE["columns"], "city": {**TREE["columns"]["city"], "public": True}}
    with pytest.raises(dpb.SchemaError, match="the public column 'city' cannot stand beside it"):
        schema(columns=columns)


def test_a_schema_file_is_read_back(tmp_path):
    schema().to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema()


def test_other_mechanisms_and_models_say_what_to_take():
    with pytest.raises(dpb.SchemaError, match="'marginals' takes each row for a record"):
        dpb.Synthesizer(schema(), dpb.Marginals(1.0))
    plain = dpb.Schema.from_dict({"columns": {"age": TREE["columns"]["age"]}})
    with pytest.raises(dpb.SchemaError, match=r"needs a table \[household\]"):
        dpb.Synthesizer(plain, Households(1.0))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.assign(role=t["role"].replace("head", "other")), "60 households have no"),
        (lambda t: t.assign(role=t["role"].replace("child", "partner")), "several members whose"),
        (lambda t: t.assign(income=np.arange(len(t)) % 200), "members that differ in 'income'"),
        (lambda t: t.assign(age=t["age"].where(t["role"] != "child", 90)), "break the rule"),
        (lambda t: t.assign(hh="h1"), "have more than the declared 5 records"),
        (lambda t: t.assign(hh=t["hh"].where(t["hh"] != "h1")), "rows have no identifier"),
        (lambda t: t.drop(columns="hh"), "'hh' of the schema's household is not in the data"),
    ],
)
def test_records_that_are_no_such_households(edit, message):
    synthesizer = dpb.Synthesizer(schema(), Households(1.0))
    with pytest.raises(dpb.DataError, match=message):
        synthesizer.fit(edit(people(60)))


def test_identifiers_that_look_alike_are_one_household():
    table = people(30)
    twice = table.assign(hh=[f"{name} " if k % 2 else name for k, name in enumerate(table["hh"])])
    assert schema().units(schema().validate(twice)) == 30


def test_rows_of_a_household_weigh_at_most_one_in_every_block():
    layout = Layout(schema())
    members = layout.homes.of(schema().validate(people(200)))
    assert len(layout.blocks) == 9  # how many, who, and five orders and two rests of others
    for block in layout.blocks:
        rows = rows_of(layout, block, members)
        together = np.bincount(members.home[rows.index], rows.weights, members.count)
        assert together.max() == pytest.approx(1 if len(rows.index) else 0)
        assert block.several or rows.weights.min() == 1


def test_values_beside_members_by_hand():
    table = pd.DataFrame(
        {
            "hh": ["x", "y", "x", "x", "x"],
            "role": ["child", "head", "head", "child", "partner"],
            "income": [5, 7, 5, 5, 5],
            "city": ["no", "yes", "no", "no", "no"],
            "age": [3, 80, 40, 9, 43],
            "language": list("abcab"),
            "hours": [0, 0, 20, 0, 0],
        }
    )
    layout = Layout(schema())
    members = layout.homes.of(schema().validate(table))
    assert members.members["age"].tolist() == [40, 43, 9, 3, 80]
    assert members.turn.tolist() == [0, 0, 0, 1, 0]
    by_turn = {(b.places, b.turn, GAP in b.hidden): b for b in layout.blocks}
    partner = rows_of(layout, by_turn[(1,), "all", True], members).values
    assert (partner["head.age"].tolist(), partner[GAP].tolist()) == ([40], [-3])
    later = rows_of(layout, by_turn[(2,), "later", True], members).values
    assert (later["(before)"].tolist(), later[GAP].tolist()) == ([9], [6])
    rest = rows_of(layout, by_turn[(2, 3), "all", False], members)
    assert rest.weights.tolist() == [0.5, 0.5]
    assert rest.values["head.language"].tolist() == [2, 2]
    numbers = rows_of(layout, layout.blocks[0], members).values[COMPOSITION].astype(int)
    counts = layout.compositions[numbers]
    assert counts.tolist() == [[1, 2, 0], [0, 0, 0]]


def test_compositions_are_all_that_are_possible():
    layout = Layout(schema())
    assert len(layout.compositions) == 15 + 10  # without and with a partner, of up to five
    assert len(set(map(tuple, layout.compositions.tolist()))) == 25
    assert layout.families.max() + 1 == 2 * 3 * 2
    by_order = Layout(schema(**without("role", "once", "rules")))
    assert by_order.compositions.tolist() == [
        [0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 2]
    ]  # fmt: skip


@pytest.mark.parametrize("role", [True, False])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_synthetic_households_keep_all_rules(role, delta):
    declared = schema() if role else schema(**without("role", "once", "rules"))
    if not role:
        declared = schema(**without("role", "once", "rules"), columns=WITHOUT_ROLE)
    fit = dpb.Synthesizer(declared, Households(2.0, delta=delta)).fit(people(400))
    release = fit.sample(2, seed=1)
    for data in release.datasets:
        assert next(iter(data)) == "hh"
        assert declared.units(data) == fit.task.rows
        declared.check_identifiers(data)
        declared.validate(data)  # households, rules, and rules between members
        assert (data["hh"].ne(data["hh"].shift()).sum()) == fit.task.rows  # together
    assert release.guarantee.lines()[0] == (
        f"ε = 2 when one household of up to 5 members is added or removed (δ = {delta:g})."
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rules": ["role != 'child' or city == 'yes'"]},
            "role and columns of the household alone",
        ),
        ({"columns": {**TREE["columns"], "(place)": AGE}}, "rename the column '.place.'"),
        ({"columns": {**TREE["columns"], "head.age": AGE}}, "rename the column 'head.age'"),
        (
            {"columns": {**TREE["columns"], "city": {**CITY, "only_if": "age >= 16"}}},
            "only_if of 'city', which is the household's, reads 'age'",
        ),
    ],
)
def test_what_no_step_can_keep_is_refused(changes, message):
    with pytest.raises(dpb.SchemaError, match=message):
        schema(**changes)


def test_equations_within_and_between_members():
    """Of the given columns, too: what follows from them is computed, and they are not."""
    born = {"type": "count", "lower": 1900, "upper": 2020}
    twice = {"type": "continuous", "lower": 0, "upper": 400, "digits": 0}
    table = people(150)
    spoken = table[table["role"] == "head"].set_index("hh")["language"].reindex(table["hh"])
    table = table.assign(
        born=2020 - table["age"], twice=2 * table["income"], language=spoken.to_numpy()
    )
    for rule in ("born == 2020 - age", "age == 2020 - born"):
        declared = schema(
            rules=[rule, "twice == income * 2"],
            columns={**TREE["columns"], "born": born, "twice": twice},
            household={
                **TREE["household"],
                "columns": ["income", "city", "twice"],
                "rules": [f"head.language == {other}.language" for other in ("child", "partner")],
            },
        )
        data = dpb.Synthesizer(declared, Households(3.0)).fit(
            table[table["role"] != "other"]
        ).sample(1, seed=1).datasets[0]  # fmt: skip
        declared.validate(data)


@pytest.mark.parametrize("role", [True, False])
def test_a_single_column_of_members(role):
    drop = () if role else ("role", "once", "rules")
    names = ["hh", "age", *(["role"] if role else [])]
    changes = without(*drop)
    changes["household"] = {**changes["household"], "columns": []}
    declared = schema(**changes, rules=[], columns={n: TREE["columns"][n] for n in names})
    data = dpb.Synthesizer(declared, Households(3.0)).fit(people(100)).sample(1, seed=1).datasets[0]
    declared.validate(data)


def test_members_of_one_age_are_in_an_order_of_their_own():
    """That of rows in the file is not public: whoever is first may decide what is drawn."""
    declared = schema(**without("role", "once", "rules"), columns=WITHOUT_ROLE, rows=120)
    table = people(120).drop(columns="role").assign(age=lambda t: t["age"] // 40 * 40)
    table = table[table["hours"].eq(0) | table["age"].ge(15)]
    drawn = []
    for seed in (1, 2):
        made = dpb.Synthesizer(declared, Households(1.0), settings=dpb.SamplerSettings(seed=3))
        shuffled = table.sample(frac=1, random_state=seed)
        drawn.append(made.fit(shuffled).sample(1, seed=3).datasets[0])
    pd.testing.assert_frame_equal(*drawn)


def test_siblings_are_as_far_apart_as_in_the_records():
    """At ε = 50, in a twentieth of families a child follows 9 years after: the sd needs these."""
    rows, rng = [], np.random.default_rng(5)
    for number in range(1500):
        apart = 9 if rng.random() < 0.05 else int(rng.integers(1, 4))
        ages = [("head", 45), ("child", 16), ("child", 16 - apart), ("child", 15 - apart - 3)]
        for role, age in ages[: int(rng.integers(2, 5))]:
            rows.append((f"h{number}", role, 10.0, "no", max(age, 0), "a", 0))
    table, declared = pd.DataFrame(rows, columns=NAMES), schema(rows=1500)
    data = dpb.Synthesizer(declared, Households(50.0)).fit(table).sample(1, seed=1).datasets[0]

    def sd(t):
        ages = t[t["role"] == "child"].sort_values(["hh", "age"], ascending=[True, False])
        return -ages.groupby("hh")["age"].diff().dropna().std()

    assert 0.8 < sd(data) / sd(table) < 1.25


def test_no_household_keeps_the_rules():
    rules = ["head.age - child.age >= 14", "head.age <= 10"]
    young = [*rules, "head.age >= 11"]
    with pytest.raises(dpb.SchemaError, match="no household was found that keeps the rules"):
        dpb.Synthesizer(schema(**changed(rules=young)), Households(1.0))


def test_households_that_break_a_rule_are_drawn_again():
    """A head of 16 cannot have a child, which the head's own columns do not know."""
    declared = schema(**changed(rules=["head.age - child.age >= 40", "head.age >= 16"]))
    table = people(300)
    head = table[table["role"] == "head"].set_index("hh")["age"]
    apart = head.reindex(table["hh"]).to_numpy() - table["age"]
    table = table[(table["role"] != "child") | (apart >= 40)]
    fit = dpb.Synthesizer(declared, Households(5.0)).fit(table)
    data = fit.sample(1, seed=2).datasets[0]
    declared.validate(data)
    assert declared.units(data) == fit.task.rows


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_households(count):
    table = people(2)
    table = table[table["hh"].isin([f"h{number}" for number in range(count)])]
    fit = dpb.Synthesizer(schema(rows=50), Households(1.0)).fit(table)
    assert schema().units(fit.sample(1, seed=1).datasets[0]) == 50


def test_a_release_is_the_same_whatever_the_order_of_rows_and_names():
    def drawn(table):
        synthesizer = dpb.Synthesizer(
            schema(rows=100), Households(1.0), settings=dpb.SamplerSettings(seed=3)
        )
        return synthesizer.fit(table).sample(1, seed=3).datasets[0]

    table = people(100)
    other = table.sample(frac=1, random_state=1).assign(hh=lambda t: "x" + t["hh"])
    pd.testing.assert_frame_equal(drawn(table), drawn(other))


def test_distances_between_members_are_those_of_their_pairs():
    """Against itself 0; with members dealt to other households large where they are alike."""
    declared = schema()
    table = declared.validate(people(800))
    found = between_members(declared, table, [table]).set_index("relation")
    assert found["distance"].max() == 0
    assert found.loc["number of members", "pairs"] == 800
    dealt = table.copy()
    partners = table.index[table["role"] == "partner"]
    moved = np.roll(partners, 7)
    for name in ("age", "language", "hours"):
        dealt.loc[partners, name] = table.loc[moved, name].to_numpy()
    apart = between_members(declared, table, [table, dealt]).set_index("relation")
    both = apart.loc["age: head and partner"]
    assert both["distance"] > 0.5 * 0.5  # half, as one of two data sets is the records
    assert apart.loc["age: head and child", "distance"] == 0
    other = declared.validate(people(800, seed=2))
    chance = between_members(declared, table, [other]).set_index("relation")
    ratio = chance["distance"] / chance["by_chance"]
    assert 0.5 < ratio[chance["pairs"] > 200].median() < 1.6


def test_a_release_tells_readers_what_the_numbers_are(tmp_path):
    declared = schema()
    job = dpb.Job((dpb.Synthesizer(declared, Households(1.0)),), tmp_path / "out", datasets=2)
    job.run(people(150))
    page = public_page(tmp_path / "out", declared).decode()
    assert "Column &#x27;hh&#x27; numbers" in page
    assert "unchanged: hh" not in page
    assert "one household added or removed" in page
    assert "one member at most" in page
    assert "~ hh" not in page
    utility = json.loads((tmp_path / "out/confidential/utility.json").read_text())
    assert "age: head and partner" in utility["members"]
    house = confidential_page(tmp_path / "out").decode()
    assert "Between members of a household" in house
    statement = json.loads((tmp_path / "out/release/guarantee.json").read_text())
    households = statement["settings"]["rows"], statement["settings"]["estimated_records"]
    persons = 10**6
    assert size_ratio(statement["settings"], persons) == pytest.approx(
        households[0] / households[1]
    )


def test_regressions_between_members_are_kept(tmp_path):
    """At ε = 20: of hours by the partner's schooling, which no table has, without it nothing."""
    rng, rows = np.random.default_rng(3), []
    for number in range(3000):
        city, own = rng.choice(["no", "yes"]), int(rng.integers(0, 61))
        rows.append((f"h{number}", "head", 10.0, city, 40, "a", own))
        if rng.random() < 0.8:
            hours = 20 + 15 * (city == "yes") + rng.normal(0, 5)
            rows.append((f"h{number}", "partner", 10.0, city, 39, "b", int(hours)))
        for child in range(rng.integers(0, 3)):
            hours = np.clip(own / 2 + rng.normal(0, 5), 0, 60)
            rows.append((f"h{number}", "child", 10.0, city, 17 - child, "b", int(hours)))
    table = pd.DataFrame(rows, columns=NAMES)
    keep = ("partner.hours ~ city", "child.hours ~ head.hours + child.age")
    slopes = []
    for kept in ((), keep):
        made = dpb.Synthesizer(schema(rows=3000), Households(20.0, keep=kept))
        data = made.fit(table).sample(1, seed=1).datasets[0]
        head = data[data["role"] == "head"].set_index("hh")
        partner, child = (data[data["role"] == role] for role in ("partner", "child"))
        by_city = partner.groupby("city")["hours"].mean()
        slope = np.polyfit(head["hours"].reindex(child["hh"]), child["hours"], 1)[0]
        slopes.append((by_city["yes"] - by_city["no"], slope))
    assert abs(slopes[0][0]) < 5
    assert slopes[1] == (pytest.approx(15, abs=1.5), pytest.approx(0.5, abs=0.07))


def test_a_regression_is_weighed_by_household_and_of_one_place():
    """Two children and another member share the weight of their household."""
    layout = Layout(schema(keep=["child.hours ~ child.age + head.hours"]))
    block = next(block for block in layout.blocks if block.kept)
    members = layout.homes.of(schema().validate(people(400)))
    rows = rows_of(layout, block, members)
    _, of_children = block.kept[0].design(rows.values)
    child = layout.homes.places.index("child")
    assert np.array_equal(of_children, members.place[rows.index] == child)
    assert not of_children.all()
    together = np.bincount(members.home[rows.index], rows.weights)
    assert together.max() == pytest.approx(1)


def test_the_page_compares_kept_regressions_of_members(tmp_path):
    formula = "partner.hours ~ head.hours + partner.age + income"
    declared, table = schema(keep=[formula]), people(400)
    dpb.Job((dpb.Synthesizer(declared, Households(5.0)),), tmp_path / "out", datasets=2).run(table)
    page = confidential_page(tmp_path / "out", PageTopic(declared, table)).decode()
    assert "Not compared" not in page
    of, own = joined(declared, declared.validate(table), formula)
    assert len(own) == (table["role"] == "partner").sum()
    assert list(of.columns) == [
        "income", "city", "head.age", "partner.age", "head.language", "partner.language",
        "head.hours", "partner.hours",
    ]  # fmt: skip
    assert f"Coefficients of {formula}" in page.replace("`", "")
    statement = json.loads((tmp_path / "out/release/guarantee.json").read_text())
    assert statement["settings"]["keep"] == [formula]
    public = public_page(tmp_path / "out", declared).decode()
    assert "regressions that the data should preserve" in public


def test_attacks_on_a_row_are_bounded_as_changes_of_its_household():
    """A member who leaves makes it another household: e to the 1, of a household, is too little."""
    synthesizer = dpb.Synthesizer(schema(), Households(1.0))
    statement = synthesizer.guarantee().to_dict()
    assert bounds_of(statement).odds == pytest.approx(np.exp(statement["epsilon"]))
    row = np.exp(statement["epsilon_substitution"])
    assert bounds_of(statement, row=True).odds == pytest.approx(row)
    assert row > 1.5 * np.exp(1)


def test_who_lives_alone_and_leaves_is_a_household_removed():
    """Of a noisy number the larger part is paid by households that are added or removed."""
    claim = dpb.Synthesizer(schema(rows={"noisy": 0.9}), Households(1.0)).guarantee()
    assert claim.epsilon_substitution == pytest.approx(0.2)
    assert claim.epsilon_member == claim.epsilon == 1
    assert bounds_of(claim.to_dict(), row=True).odds == pytest.approx(np.exp(1))
    assert "for one member it is ε = 1 at most" in claim.lines()[1]
    assert "for single members ε is at most 1;" in claim.paragraph()
    public = dpb.Synthesizer(schema(rows="public"), Households(1.0)).guarantee()
    assert public.epsilon_member == public.epsilon_substitution == 1


@pytest.mark.parametrize("most", [2, 3, 4, 5])
def test_members_by_order_have_as_many_places_as_there_can_be(most):
    """Each block of tables is asked about: none is paid for and never drawn."""
    table = people(200)
    table = table[table.groupby("hh").cumcount() < most]
    small = without("role", "once", "rules")["household"] | {"most": most}
    declared = schema(household=small, rows=200)
    assert len(declared.homes.places) == min(most, 4)
    fitted = dpb.Synthesizer(declared, Households(1.0)).fit(table).fitted
    assert None not in fitted.draw_private(StudyNoise(1))
    made = fitted.synthetic(fitted.draw_private(StudyNoise(2)), 200, np.random.default_rng(1))
    assert made.groupby("hh").size().max() == most


def test_an_identifier_of_persons_stands_in_one_household():
    columns = {**TREE["columns"], "pid": {"type": "identifier"}}
    table = people(40)
    table["pid"] = [f"p{k}" for k in range(len(table))]
    synthesizer = dpb.Synthesizer(schema(columns=columns), Households(1.0))
    synthesizer.fit(table)
    twice = table.assign(pid=table["pid"].where(table["role"] != "child"))
    synthesizer.fit(twice.set_axis(np.arange(len(table)) % 7))  # as pd.concat leaves it
    table.loc[table["hh"].isin(["h1", "h2"]) & (table["role"] == "head"), "pid"] = "p"
    with pytest.raises(dpb.DataError, match="'pid': 1 identifiers stand in several households"):
        synthesizer.fit(table)


def test_places_that_no_draft_has_are_asked_about():
    """A data set may draw a child although all households of the draft are of one."""
    table = people(300)
    table = table[table["role"] == "head"].reset_index(drop=True)
    for declared in (schema(rows=300), schema(**without("role", "once", "rules"), rows=300)):
        fitted = dpb.Synthesizer(declared, Households(50.0)).fit(table).fitted
        output = fitted.draw_private(StudyNoise(1))
        assert all(answer is not None for answer in output)


def test_roles_of_which_one_begins_as_another():
    roles = ["head", "child", "child.step"]
    columns = {**TREE["columns"], "role": {"type": "categorical", "levels": roles}}
    declared = schema(
        **changed(once=["head"], rules=[]), columns=columns, keep=["child.step.hours ~ city"]
    )
    (block,) = (block for block in Layout(declared).blocks if block.kept)
    assert Layout(declared).homes.places.index("child.step") in block.places


def test_neighbours_differ_and_are_of_each_kind():
    """A household beside itself would have no loss, and look like noise that is large enough."""
    declared, table = schema(), schema().validate(people(200))
    found = neighbours(declared, table, 12)
    sizes = {len(one.record) - len(one.instead) for one in found if one.adjacency == "substitution"}
    assert -1 in sizes  # one loses a member
    for one in found:
        members = [part[list(declared.columns)].astype(str) for part in (one.record, one.instead)]
        assert sorted(members[0].to_numpy().tolist()) != sorted(members[1].to_numpy().tolist())
    twins = people(1)
    alike = pd.concat([twins.assign(hh=f"h{k}") for k in range(30)], ignore_index=True)
    assert len(neighbours(declared, declared.validate(alike), 3)) == 3


def test_a_declared_number_of_households_is_counted_too():
    """At ε = 1 the sum over all compositions is off by more than there are."""
    made = dpb.Synthesizer(schema(rows=1000), Households(1.0))
    fitted = made.fit(people(120)).fitted
    numbers = [
        fitted.told(fitted.draw_private(StudyNoise(seed)))["estimated_records"] for seed in range(6)
    ]
    assert np.abs(np.array(numbers) - 120).mean() < 60  # P < 1e-4 of more, of noise with sd 28


def test_an_account_is_of_households_or_of_records(tmp_path):
    ledger = dpb.Ledger.create(tmp_path / "l.db")
    ledger.add_dataset("a", epsilon=5, adjacency="add-remove")
    made = dpb.Synthesizer(schema(), Households(1.0))
    dpb.Job((made,), tmp_path / "out", ledger=ledger, dataset="a").run(people(60))
    assert ledger.account("a").spent[0] == pytest.approx(1)
    alone = dpb.Schema.from_dict({"columns": {"age": TREE["columns"]["age"]}})
    with pytest.raises(dpb.BudgetError, match="so far are for a household"):
        ledger.check("a", dpb.Synthesizer(alone, dpb.Marginals(1.0)).guarantee())
    ledger.check("a", made.guarantee())
    columns = {"home" if name == "hh" else name: c for name, c in TREE["columns"].items()}
    other = dpb.Synthesizer(schema(**changed(id="home"), columns=columns), Households(1.0))
    message = "so far are for a household by hh, and this one is for a household by home"
    with pytest.raises(dpb.BudgetError, match=message):
        ledger.check("a", other.guarantee())


def test_families_and_sizes_are_kept_at_a_large_epsilon():
    """At ε = 40 noise is small: shares of households by size, and partners' ages, are near."""
    table, declared = people(1500), schema(rows=1500)
    data = dpb.Synthesizer(declared, Households(40.0)).fit(table).sample(1, seed=4).datasets[0]

    def facts(t):
        sizes = t.groupby("hh").size().value_counts(normalize=True).reindex(range(1, 6)).fillna(0)
        heads = t[t["role"] == "head"].set_index("hh")
        partners = t[t["role"] == "partner"].set_index("hh")
        apart = partners["age"] - heads["age"].reindex(partners.index)
        language = (partners["language"] == heads["language"].reindex(partners.index)).mean()
        return sizes, apart.mean(), apart.std(), language

    own, made = facts(table), facts(data)
    assert np.abs(own[0] - made[0]).sum() < 0.05
    assert abs(own[1] - made[1]) < 1
    assert 0.7 < made[2] / own[2] < 1.5
    assert made[3] > 0.8  # .93 in the records; .45 for two people of different households


def same_persons(table):
    """The table in other rows, under other numbers, and with a column that is not declared."""
    shuffled = table.sample(frac=1, random_state=1).reset_index(drop=True)
    homes = shuffled["hh"].unique()
    names = dict(zip(homes, np.random.default_rng(2).permutation(len(homes)), strict=True))
    renamed = shuffled.assign(hh=[f"x{names[home]}" for home in shuffled["hh"]])
    return {
        "shuffled": shuffled,
        "renamed": renamed,
        "by new names": renamed.sort_values("hh", kind="stable").reset_index(drop=True),
        "one column more": shuffled.assign(extra=0),
        "renamed, one column more": renamed.assign(extra=0),
    }


@pytest.mark.parametrize("unit", ["household", "cluster"])
def test_a_ledger_knows_persons_whatever_the_order_of_rows_and_names(tmp_path, unit):
    """Their own account takes them, and no other."""
    tree = {**TREE, "rows": 300}
    if unit == "cluster":
        tree = {key: value for key, value in tree.items() if key not in ("household", "keep")}
        tree |= {"cluster": {"column": "hh", "most": 8}}
        tree["rules"] = [rule for rule in tree.get("rules", []) if "." not in rule]
    declared = dpb.Schema.from_dict(tree)
    mechanism = Households(1.0) if unit == "household" else dpb.Marginals(1.0)
    synthesizer = dpb.Synthesizer(declared, mechanism)
    table = people(300)
    ledger = dpb.Ledger.create(tmp_path / "ledger.db")
    ledger.add_dataset("a", 10.0)
    claim = synthesizer.guarantee().for_datasets(1)
    ledger.reserve("a", claim, identity_of(synthesizer.table(table)), "1" * 32, tmp_path)
    ledger.add_dataset("b", 10.0)
    for other in same_persons(table).values():
        known = identity_of(synthesizer.table(other))
        ledger.check("a", claim, known)
        with pytest.raises(dpb.DpbayesError, match="are those of data set 'a'"):
            ledger.check("b", claim, known)


@pytest.mark.parametrize("file_format", WRITTEN)
def test_a_release_of_households_is_written_in_every_format(tmp_path, monkeypatch, file_format):
    """With a file no larger than the space that was allocated before it was paid for."""
    sizes, allocate = {}, Work.allocate
    monkeypatch.setattr(
        Work, "allocate", lambda self, given: (sizes.update(given), allocate(self, given))
    )
    synthesizer = dpb.Synthesizer(schema(rows="public"), Households(1.0))
    job = dpb.Job((synthesizer,), tmp_path / "out", datasets=2, file_format=file_format)
    job.run(people(400))
    for name, size in sizes.items():
        assert (tmp_path / "out/release" / name).stat().st_size <= size
    data = dpb.read_records(next((tmp_path / "out/release").glob("synthetic_1.*")))
    assert data["hh"].nunique() == 400


def test_an_identifier_that_a_format_does_not_take_is_refused_before_the_payment(tmp_path):
    tree = json.loads(json.dumps(TREE).replace('"hh"', '"hh no"'))
    declared = dpb.Schema.from_dict({**tree, "rows": 100})
    with pytest.raises(dpb.DpbayesError, match="column 'hh no' cannot be written for Stata"):
        dpb.Job(
            (dpb.Synthesizer(declared, Households(1.0)),), tmp_path / "out", file_format="stata"
        )


def test_identifiers_are_told_apart_by_their_whole_name():
    one, two = (
        dpb.Synthesizer(
            dpb.Schema.from_dict(json.loads(json.dumps(TREE).replace('"hh"', f'"{name}"'))),
            Households(1.0),
        ).guarantee()
        for name in ("h" * 80 + "1", "h" * 80 + "2")
    )
    assert one.whose != two.whose


@pytest.mark.parametrize("unit", ["household", "cluster"])
def test_a_ledger_knows_a_table_with_one_row_for_each_household(tmp_path, unit):
    """Of what its members share, in both orders; other households have a budget of their own."""
    tree = {**TREE, "rows": 400}
    if unit == "cluster":
        tree = {
            key: value for key, value in tree.items() if key not in ("household", "keep", "rules")
        }
        tree["cluster"] = {"column": "hh", "most": 8}
    columns = {**TREE["columns"], "income": {"type": "continuous", "lower": 0, "upper": 201}}
    tree["columns"] = columns
    shared = {"hh": columns["hh"], "income": columns["income"]}
    mechanism = Households(1.0) if unit == "household" else dpb.Marginals(1.0)
    members = dpb.Synthesizer(dpb.Schema.from_dict(tree), mechanism)
    homes = dpb.Synthesizer(
        dpb.Schema.from_dict({"columns": shared, "rows": 400}), dpb.Marginals(1.0)
    )

    def with_incomes(seed):
        """Incomes that tell households apart."""
        made = people(400, seed)
        homes = pd.factorize(made["hh"])[0]
        return made.assign(income=np.random.default_rng(seed).uniform(0, 201, 400)[homes])

    table = with_incomes(1)
    one_each, others = (t.drop_duplicates("hh")[["hh", "income"]] for t in (table, with_incomes(9)))
    for number, (first, second) in enumerate(
        (((members, table), (homes, one_each)), ((homes, one_each), (members, table)))
    ):
        ledger = dpb.Ledger.create(tmp_path / f"{number}.db")
        for name in ("a", "b", "c"):
            ledger.add_dataset(name, 10.0)
        claims = [one.guarantee().for_datasets(1) for one, _ in (first, second)]
        known = [identity_of(one.table(rows)) for one, rows in (first, second)]
        ledger.reserve("a", claims[0], known[0], "1" * 32, tmp_path)
        with pytest.raises(dpb.DpbayesError, match="100% with 'a'"):
            ledger.check("b", claims[1], known[1])
        ledger.check(
            "c", claims[1] if second[0] is homes else claims[0], identity_of(homes.table(others))
        )


@pytest.mark.parametrize("file_format", WRITTEN)
@pytest.mark.parametrize("levels", [[1, 2, 3, 4], [1.5, 2, 3, 4], ["head", 2, True, 4]])
def test_roles_of_all_types_are_written_in_every_format(tmp_path, file_format, levels):
    new = dict(zip(TREE["columns"]["role"]["levels"], levels, strict=True))
    columns = {**TREE["columns"], "role": {**TREE["columns"]["role"], "levels": levels}}
    once = [str(new[name]) for name in TREE["household"]["once"]]
    household = {key: value for key, value in TREE["household"].items() if key != "rules"}
    tree = {"columns": columns, "household": {**household, "once": once}, "rows": 200}
    table = people(200)
    table = table.assign(role=table["role"].map(new).astype(object))
    job = dpb.Job(
        (dpb.Synthesizer(dpb.Schema.from_dict(tree), Households(1.0)),), tmp_path / "out",
        datasets=1, file_format=file_format,
    )  # fmt: skip
    job.run(table)
    assert next((tmp_path / "out/release").glob("synthetic_1.*")).stat().st_size > 0
