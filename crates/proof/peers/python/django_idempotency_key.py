"""django-idempotency-key 1.3.0 with its default settings: memory storage, a thread lock; one process, a thread per connection."""

import django
from charges import django_urls, serve_wsgi
from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    MIDDLEWARE=["idempotency_key.middleware.IdempotencyKeyMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="loopback only",
)
django.setup()
urlpatterns = django_urls()
serve_wsgi(get_wsgi_application())
