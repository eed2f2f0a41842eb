"""Cron expressions in words, in both languages of the dashboard."""

import pytest

from detent.core.cron import describe_cron


@pytest.mark.parametrize(
    ("expression", "english", "chinese"),
    [
        ("0 3 * * *", "every day at 03:00", "每天 03:00"),
        ("@daily", "every day at 00:00", "每天 00:00"),
        ("@hourly", "every hour at minute 0", "每小时的第 0 分"),
        ("* * * * *", "every minute", "每分钟"),
        ("*/5 * * * *", "every 5 minutes", "每 5 分钟"),
        ("15 */6 * * *", "every 6 hours at minute 15", "每 6 小时的第 15 分"),
        ("30 2 * * MON-FRI", "on Monday to Friday at 02:30", "周一至周五 02:30"),
        ("0 9,17 * * 1,3", "on Monday and Wednesday at 09:00 and 17:00", "周一、周三 09:00、17:00"),
        ("0 0 1 * *", "on day 1 of the month at 00:00", "每月 1 日 00:00"),
        ("0 0 L * *", "on the last day of the month at 00:00", "每月最后一天 00:00"),
        ("0 0 1 JAN *", "on day 1 of the month in January at 00:00", "1 月 每月 1 日 00:00"),
        ("0 12 1 * SUN", "on day 1 of the month or on Sunday at 12:00", "每月 1 日或周日 12:00"),
        ("*/10 * * * * *", "every 10 seconds", "每 10 秒"),
        ("*/5 * * * 6", "every 5 minutes on Saturday", "周六 每 5 分钟"),
        ("0-30 8 * * *", "every day at minute 0-30, hour 8", "每天 第 8 时的第 0-30 分"),
        ("0 0 * * 5L", "on 5L at 00:00", "5L 00:00"),
    ],
)
def test_in_words(expression: str, english: str, chinese: str) -> None:
    assert describe_cron(expression) == english
    assert describe_cron(expression, "zh") == chinese
