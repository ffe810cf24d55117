"""Views: Delta tables that streaming queries write and anybody reads."""
