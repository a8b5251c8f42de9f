"""The pages of the console: HTML by Jinja2, made of what the API tells.

    routes.py     every path, with the function that answers it
    views.py      pages that show; each asks the console and fills one template
    changes.py    pages that change something: ask with the consequence, then do it
    letters.py    the same for dead letters, with a result for each; people.py: users and rights
    live.py       events of a page that is open: rates, and new messages of a topic
    rendering.py  templates, texts of both languages, files that browsers load
    formats.py    values as people read them; a value that is not known is said to be so
    states.py     what a state looks like: its severity, its word, where it is mended
    chinese.toml  the texts in Chinese

Every page and form works without scripts. Every value in HTML passes autoescape, and signs that
have no shape or turn the text around are shown as their escapes.
"""
