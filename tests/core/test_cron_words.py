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
        ("0 0 1 JAN *", "on day 1 of the month in January at 00:00", "每年 1 月 1 日 00:00"),
        ("0 12 1 * SUN", "on day 1 of the month or on Sunday at 12:00", "每月 1 日或周日 12:00"),
        ("*/10 * * * * *", "every 10 seconds", "每 10 秒"),
        ("*/5 * * * 6", "every 5 minutes on Saturday", "周六 每 5 分钟"),
        ("0-30 8 * * *", "every day at minute 0-30, hour 8", "每天 第 8 时的第 0-30 分"),
        ("0 0 * * 5L", "on the last Friday of the month at 00:00", "每月最后一个周五 00:00"),
        ("0 12 * * MON#1", "on the first Monday of the month at 12:00", "每月第一个周一 12:00"),
        ("0 0 LW * *", "on the last weekday of the month at 00:00", "每月最后一个工作日 00:00"),
        ("0 0 * * 1-5/2", "on Monday, Wednesday and Friday at 00:00", "周一、周三、周五 00:00"),
        (
            "0 0 1 */3 *",
            "on day 1 of the month in January, April, July and October at 00:00",
            "每年 1、4、7、10 月 1 日 00:00",
        ),
        (
            "0 0 */2 * MON",
            "on day 1, 3, …, 31 of the month, only on Monday at 00:00",
            "每月 1、3、…、31 日，且为周一 00:00",
        ),
        ("*/7 * * * *", "every hour at minute 0, 7, …, 56", "每小时的第 0、7、…、56 分"),
        ("*/90 * * * *", "every hour at minute 0", "每小时的第 0 分"),
        ("*/1 * * * *", "every minute", "每分钟"),
        ("0-59/15 * * * *", "every 15 minutes", "每 15 分钟"),
        ("0 */24 * * *", "every day at 00:00", "每天 00:00"),
        ("* 3 * * *", "every day every minute, hour 3", "每天 第 3 时每分钟"),
        ("0 9-17 * * *", "every day at minute 0, hour 9-17", "每天 第 9-17 时的第 0 分"),
        ("30 * * * * *", "every minute, at second 30", "每分钟、第 30 秒"),
        ("*/10 0 3 * * *", "every day at 03:00, every 10 seconds", "每天 03:00、每 10 秒"),
        ("0 0 * * 0,1-5,7", "on Sunday to Friday at 00:00", "周日至周五 00:00"),
        (
            "0 0 L 1-3,12 *",
            "on the last day of the month in January to March and December at 00:00",
            "每年 1-3、12 月 最后一天 00:00",
        ),
        ("0 30 2 * * SAT,SUN", "on Sunday and Saturday at 02:30", "周日、周六 02:30"),
    ],
)
def test_in_words(expression: str, english: str, chinese: str) -> None:
    assert describe_cron(expression) == english
    assert describe_cron(expression, "zh") == chinese
