"""The URLs of the shop, and the admin, which shows orders, jobs, dead letters and schedules."""

from django.contrib import admin
from django.urls import path
from orders import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", views.place_order),
    path("orders/<int:order_id>/", views.show_order),
]
