"""The sign-in of the staff: a signed cookie. $SHOP_STAFF has name:password:role, separated by commas."""

import hmac
import os
import secrets
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.requests import Request

from detent.integrations.fastapi import Person

SECRET = os.environ.get("SHOP_SECRET", "") or secrets.token_hex()
STAFF = {entry.split(":")[0]: entry.split(":")[1:] for entry in os.environ.get("SHOP_STAFF", "").split(",") if entry}
FORM = """<!doctype html><title>Sign in</title><form method="post">
<input name="name" placeholder="name"> <input name="password" type="password"> <button>Sign in</button></form>"""
router = APIRouter(include_in_schema=False)


def person_of(request: Request) -> Person | None:
    """Who sends a request to Detent; None: nobody is signed in."""
    name, _, signature = request.cookies.get("staff", "").partition(":")
    if name not in STAFF or not hmac.compare_digest(signature.encode(), _sign(name).encode()):
        return None
    return Person(name, role=STAFF[name][1], tenant="*")


@router.get("/login", response_class=HTMLResponse)
def form() -> str:
    return FORM


@router.post("/login")
async def login(request: Request, next: str = "/detent/") -> RedirectResponse:
    given = parse_qs((await request.body()).decode())
    name, password = given.get("name", [""])[0], given.get("password", [""])[0]
    if name not in STAFF or not hmac.compare_digest(password.encode(), STAFF[name][0].encode()):
        raise HTTPException(403, "wrong name or password")
    response = RedirectResponse(next if next.startswith("/detent/") else "/detent/", 303)
    response.set_cookie("staff", f"{name}:{_sign(name)}", httponly=True, samesite="lax")
    return response


@router.get("/logout")
def logout() -> RedirectResponse:
    response = RedirectResponse("/login", 303)
    response.delete_cookie("staff")
    return response


def _sign(name: str) -> str:
    return hmac.new(SECRET.encode(), name.encode(), "sha256").hexdigest()
