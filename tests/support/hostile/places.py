"""Files: what would run in another process, in the next worker, or in the referee."""

from hostile.base import MEANS, Attack, attack

FOLDERS = """
def folders():
    found = [os.path.dirname(os.path.dirname(np.__file__)), os.path.dirname(os.__file__)]
    found += ['/grading/worker', '/grading/submission', '/grading', '/', '/etc', '/usr/lib', '/opt']
    return found + [path for path in sys.path if path]
"""

TEXT = "import os\nprint('PASS')\nos._exit(0)\n"


def shadowing(name: str, tries: str, files: dict[str, str]) -> Attack:
    """A submission with files that are named as others."""
    honest = "import numpy as np\n\ndef row_sum(x, scale):\n    return scale * x.sum(axis=1)\n"
    return Attack(name, "pass", tries, {"row_sum.py": honest, "means.py": MEANS} | files)


ATTACKS = (
    attack(
        "writes where modules are found",
        "pass",
        "sitecustomize, usercustomize and a .pth file in every folder of the path",
        """
for folder in folders():
    for name in ('sitecustomize.py', 'usercustomize.py', '@MARK@.pth', '@MARK@'):
        refused(open, os.path.join(folder, name), 'a')
""",
        FOLDERS,
    ),
    attack(
        "writes to its home",
        "pass",
        "usercustomize and a start-up file in a home that the next worker does not have",
        """
home = os.environ['HOME']
if first():
    if os.path.exists(home + '/.local'): won('a home of an earlier worker')
    os.makedirs(home + '/.local/lib/python3/site-packages')
    open(home + '/.local/lib/python3/site-packages/usercustomize.py', 'w').write('@MARK@')
""",
    ),
    attack(
        "writes over the worker",
        "pass",
        "main.py, wire.py and the adapter: replaced, linked, appended to, through /proc/self/fd",
        """
for name in os.listdir('/grading/worker'):
    path = f'/grading/worker/{name}'
    refused(open, path, 'a')
    refused(os.rename, path, path + '@MARK@')
    refused(os.unlink, path)
    refused(os.chmod, path, 0o777)
    fd = os.open(path, os.O_RDONLY)
    refused(open, f'/proc/self/fd/{fd}', 'a')
    os.close(fd)
""",
    ),
    attack(
        "writes over itself",
        "pass",
        "another text in its own file for the worker that measures time",
        """
for name in ('row_sum.py', '__pycache__/x', '@MARK@'):
    refused(open, os.path.join(os.path.dirname(__file__), name), 'a')
refused(os.mkdir, os.path.join(os.path.dirname(__file__), '__pycache__'))
""",
    ),
    attack(
        "writes over numpy",
        "pass",
        "`numpy/__init__.py` and its libraries",
        """
refused(open, np.__file__, 'a')
refused(os.rename, np.__file__, np.__file__ + '@MARK@')
""",
    ),
    attack(
        "preloads a library",
        "pass",
        "LD_PRELOAD, PYTHONSTARTUP and PYTHONPATH in its own environment",
        """
for name in ('LD_PRELOAD', 'LD_LIBRARY_PATH', 'PYTHONPATH', 'PYTHONSTARTUP', 'PYTHONHOME'):
    os.environ[name] = '/tmp/@MARK@'
""",
    ),
    attack(
        "leaves links",
        "pass",
        "links in /tmp to the files of the machine, for whoever cleans up",
        """
if first():
    for n, path in enumerate(('/', '/etc', '/grading', '/proc/1/root')):
        os.symlink(path, f'/tmp/@MARK@{n}')
    try: os.link('/etc/passwd', '/tmp/@MARK@hard')
    except OSError: pass
""",
    ),
    attack(
        "leaves links, unconfined",
        "pass",
        "the same in the scratch of an unconfined worker",
        """
if first():
    for n, path in enumerate(('/usr', '/etc', os.path.dirname(__file__))):
        os.symlink(path, os.environ['TMPDIR'] + f'/@MARK@{n}')
""",
        options={"isolation": "process"},
    ),
    attack(
        "reads what is sealed",
        "pass",
        "walks everything that it can see for cases, rubrics and references",
        """
if first():
    for folder, _, files in os.walk('/'):
        if folder.startswith(('/proc', '/sys', '/usr', '/lib', '/dev', '/etc')): continue
        for name in files:
            if name in ('cases.py', 'rubric.toml', 'task.toml', 'prompt.md'):
                won(os.path.join(folder, name))
""",
        limits={"call_s": 10.0},
    ),
    shadowing(
        "named as the libraries",
        "its own numpy, json, socket, traceback and adapter beside its entry: too late",
        dict.fromkeys(("numpy.py", "json.py", "socket.py", "traceback.py", "adapter.py"), TEXT),
    ),
    shadowing(
        "named as the start of Python",
        "its own sitecustomize, usercustomize and __main__",
        dict.fromkeys(("sitecustomize.py", "usercustomize.py", "__main__.py", "x.pth"), TEXT),
    ),
    shadowing(
        "named as the grader",
        "its own graders, conftest and pytest settings",
        {
            "graders/__init__.py": TEXT,
            "conftest.py": TEXT,
            "pytest.ini": "[pytest]\naddopts = -p x\n",
            "tests/__init__.py": TEXT,
        },
    ),
)
