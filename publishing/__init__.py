"""What turns a commit into a release: its build, its checks and the Markdown of its pages."""
