"""What is said where no browser can be had."""

NO_BROWSER = "no chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)"
