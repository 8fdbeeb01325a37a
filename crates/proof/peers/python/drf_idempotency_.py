"""drf-idempotency 1.0.0 as its README shows it: the middleware over the database (SQLite, write-ahead log), defaults."""

import django
from charges import FILE, django_urls, serve_wsgi
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": FILE + ".db",
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"},
        }
    },
    IDEMPOTENCY={"BACKEND": "drf_idempotency.backends.database.DatabaseBackend"},
    INSTALLED_APPS=["drf_idempotency"],
    MIDDLEWARE=["drf_idempotency.middleware.IdempotencyMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="loopback only",
    USE_TZ=True,
)
django.setup()
call_command("migrate", verbosity=0)
urlpatterns = django_urls()
serve_wsgi(get_wsgi_application())
