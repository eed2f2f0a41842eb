"""What an application calls: the app, jobs, handles, schedules, dead letters."""
