"""What an application uses: the app, job definitions, handles, schedules, dead letters, workflows."""
