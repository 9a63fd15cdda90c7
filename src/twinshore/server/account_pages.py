"""Pages of logins: the login itself, the first admin, a command line's login, people and tokens."""

from __future__ import annotations

from functools import partial

from twinshore.server.core.access import PASSWORD_CHARS_MIN, TOKEN_DAYS_MAX, require
from twinshore.server.core.catalogue import Role
from twinshore.server.html import Child, Markup, button, field, link, render, table, tag
from twinshore.server.job_pages import roles_up_to
from twinshore.server.layout import Page, Visit, badge, card, path_to, when

HINT = f"At least {PASSWORD_CHARS_MIN} characters."


def _fault(sentence: str) -> Markup | None:
    return tag("p", sentence, class_="error", role="alert") if sentence else None


def login_page(fault: str = "", next_: str = "/", provider: str = "") -> Page:
    """`provider`: the name of an identity provider."""
    other = tag("p", link(path_to("login", "oidc", next=next_), f"Log in with {provider}")) if provider else None
    form = tag(
        "form",
        _fault(fault),
        tag("input", type="hidden", name="next", value=next_),
        field("Name", "name", required=True, autocomplete="username", autofocus=True),
        field("Password", "password", type="password", required=True, autocomplete="current-password"),
        tag("p", button("Log in")),
        method="post",
        action="/login",
    )
    return Page("Log in", "Who are you?", fixed=card("Log in", form, other), every_s=0, status=401 if fault else 200)


def logged_in_page(next_: str) -> Page:
    """Goes on by itself: a browser sends the session's cookie only to what a page of ours asks for."""
    page = Page("Logged in", "You are logged in.", fixed=tag("p", link(next_, "Go on")), every_s=0)
    page.goes_on = next_
    return page


def first_admin_page(secret: str, fault: str = "", name: str = "") -> Page:
    form = tag(
        "form",
        _fault(fault),
        tag("input", type="hidden", name="secret", value=secret),
        field("Name", "name", required=True, autocomplete="username", value=name),
        field("Password", "password", help_=HINT, type="password", required=True, autocomplete="new-password"),
        tag("p", button("Make the admin")),
        method="post",
        action="/first-admin",
    )
    lead = "This link makes an admin, once. A person who has the name gets the password."
    return Page("The first admin", lead, fixed=card("Who", form), every_s=0, status=400 if fault else 200)


def device_page(visit: Visit, said: str = "") -> Page:
    """A code is typed, never filled in: a link that a stranger sends must not be one tap from a token."""
    form = visit.form(
        "/device",
        tag("p", said, role="status") if said else None,
        field("Code", "code", required=True, autocomplete="off"),
        tag("p", button("Let this command line act for me")),
    )
    lead = "A command line asks to act for you. Go on only if it shows the same code."
    return Page("Command line", lead, fixed=card("Confirm", form), every_s=0)


def account_page(visit: Visit, fresh: str = "", fault: str = "") -> Page:
    """The visitor's tokens. `fresh`: one made just now, shown this once."""
    caller = visit.caller
    found = visit.store.people.tokens_of(caller.name, visit.now_ms)
    rows: list[list[Child]] = [
        [
            row.name,
            row.role,
            when(row.made_ms),
            when(row.ends_ms),
            visit.form(path_to("account", "end-token"), _hidden("digest", row.digest), button("End it")),
        ]
        for row in found
    ]
    shown = table(["Token", "Role", "Made", "Ends", ""], rows, none="no token", caption="Tokens")
    secret = (
        tag("p", "The token, shown this once: ", tag("code", fresh, data_copy=True), class_="fresh", role="status")
        if fresh
        else None
    )
    form = visit.form(
        path_to("account", "add-token"),
        _fault(fault),
        field("Name", "name", required=True),
        _roles("role", roles_up_to(caller.role)),
        field("Days", "days", type="number", value=90, min=1, max=TOKEN_DAYS_MAX),
        tag("p", button("Make a token")),
    )
    password = visit.form(
        path_to("account", "password"),
        field("Password now", "old", type="password", required=True, autocomplete="current-password"),
        field("New password", "new", help_=HINT, type="password", required=True, autocomplete="new-password"),
        tag("p", button("Change the password")),
    )
    lead = f"You are {caller.name}, {caller.role}."
    person = visit.store.people.of(caller.name)
    own = card("Password", password) if person and person.password else None  # a provider keeps its own
    return Page("Account", lead, fixed=render(secret, card("Tokens", shown), card("A new token", form), own), every_s=0)


def people_page(visit: Visit, fault: str = "") -> Page:
    """Who may log in, and as what."""
    require(visit.caller, Role.ADMIN)
    rows: list[list[Child]] = []
    for person in visit.store.people.all():
        is_self = person.name == visit.caller.name
        state = badge(4, "disabled") if person.disabled_ms else badge(0, person.role)
        change = partial(visit.form, "/people/change", _hidden("name", person.name))
        word, value = ("Enable", "1") if person.disabled_ms else ("Disable", "0")
        changes = [change(_hidden("enabled", value), button(word))]
        if not person.identity:  # else the provider has role and password
            secret = tag("input", type="password", name="password", required=True, autocomplete="new-password")
            place = tag("p", tag("label", f"New password. {HINT} ", secret), class_="field")
            renew = change(place, button("Set it, and log the person out"))
            changes.insert(0, change(_roles("role", list(Role), person.role), button("Give the role")))
            changes.append(tag("details", tag("summary", "Set a new password"), renew))
        rows.append([person.name, state, person.made_by, when(person.made_ms), None if is_self else changes])
    form = visit.form(
        "/people/add",
        _fault(fault),
        field("Name", "name", required=True, autocomplete="off", value=visit.text("name")),
        field("First password", "password", help_=HINT, type="password", required=True, autocomplete="new-password"),
        _roles("role", list(Role), visit.text("role") or Role.VIEWER),
        tag("p", button("Add")),
    )
    shown = table(["Name", "Role", "Made by", "When", ""], rows, caption="People")
    lead = "Who may log in. A person who is disabled is logged out at once, tokens included."
    return Page("People", lead, fixed=render(card("People", shown), card("Add a person", form)), every_s=0)


def _hidden(name: str, value: str) -> Markup:
    return tag("input", type="hidden", name=name, value=value)


def _roles(name: str, roles: list[Role], chosen: str = Role.VIEWER) -> Markup:
    options = [tag("option", role, value=role, selected=role == chosen) for role in roles]
    return tag("p", tag("label", "Role ", tag("select", options, name=name)), class_="field")
