"""Headless browsers, driven with Python's standard library: a Chromium through its DevTools protocol, and a Firefox through
WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/)."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


FIREFOX = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)


class Driven:
    """A browser that answers to messages in JSON through a WebSocket. `said` has what its page says: messages of the
    console, and exceptions."""

    def __init__(self, words, port_file, seconds):
        self.folder = tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True)
        words = [word.replace("FOLDER", self.folder.name) for word in words]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.said, self.number, self.seconds = [], 0, seconds
        path = Path(self.folder.name, port_file)
        self.port_text = self.wait_for(lambda: path.exists() and path.read_text())

    def wait_for(self, found):
        deadline = time.monotonic() + self.seconds
        while not (value := found()):
            if time.monotonic() > deadline:
                raise TimeoutError("the browser does not answer")
            time.sleep(0.02)
        return value

    def connect(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", int(port)), timeout=self.seconds)
        self.stream = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        request = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket",
                   "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self.socket.sendall("\r\n".join(request).encode())
        while self.stream.readline() not in (b"\r\n", b""):
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = struct.pack("!B", 0x80 | len(data)) if len(data) < 126 else struct.pack("!BH", 0xFE, len(data)) \
            if len(data) < 65536 else struct.pack("!BQ", 0xFF, len(data))
        self.socket.sendall(b"\x81" + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, size = self.stream.read(2)
            size &= 0x7F
            if size > 125:
                size = int.from_bytes(self.stream.read(2 if size == 126 else 8), "big")
            text += self.stream.read(size)
            if first & 0x80:
                return json.loads(text)

    def call(self, method, **parameters):
        """A method of the protocol. Returns its result."""
        self.number += 1
        self.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while (answer := self.receive()).get("id") != self.number:
            self.note(answer)
        if error := answer.get("error"):
            raise RuntimeError(f"{method}: {answer.get('message') or error['message']}")
        return answer["result"]

    def close(self):
        self.stream.close()
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


class Browser(Driven):
    """A page of a headless Chromium."""

    def __init__(self, seconds=60):
        super().__init__([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                          "--no-first-run", "--disable-ipc-flooding-protection", "--remote-debugging-port=0",
                          "--user-data-dir=FOLDER", "about:blank"], "DevToolsActivePort", seconds)
        port = self.port_text.split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            pages = json.load(answer)
        url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self.connect(port, url[url.index("/devtools"):])
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def note(self, event):
        if event.get("method") == "Runtime.consoleAPICalled":
            words = (str(one.get("value", one.get("description"))) for one in event["params"]["args"])
            self.said.append(" ".join(words))
        elif event.get("method") == "Runtime.exceptionThrown":
            thrown = event["params"]["exceptionDetails"].get("exception", {})
            self.said.append(thrown.get("description", "exception"))
        elif event.get("method") == "Log.entryAdded":
            self.said.append(event["params"]["entry"]["text"])

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def open(self, address):
        """Loads a page, and returns when it is there."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait_for(lambda: self.run("document.readyState === 'complete' && location.href !== 'about:blank'"))

    def press(self, key):
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        text |= {"windowsVirtualKeyCode": code} if (code := {"Tab": 9, "Enter": 13}.get(key)) else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)

    def scheme(self, name, motion="no-preference"):
        """light or dark; `motion`: reduce"""
        features = {"prefers-color-scheme": name, "prefers-reduced-motion": motion}
        self.call("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in features.items()])

    def picture(self, path, is_whole=False):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=is_whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


KEYS_OF_WEBDRIVER = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "End": "\ue010", "Home": "\ue011",
                     "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}


def of_remote(value):
    """A value as WebDriver BiDi writes it."""
    if value["type"] == "array":
        return [of_remote(one) for one in value["value"]]
    if value["type"] == "object":
        return {name: of_remote(one) for name, one in value.get("value", [])}
    return value.get("value")


class Firefox(Driven):
    """A page of a headless Firefox, with what tests need of a Browser."""

    def __init__(self, seconds=60):
        super().__init__([FIREFOX, "--headless", "--no-remote", "--profile", "FOLDER", "--remote-debugging-port=0"],
                         "WebDriverBiDiServer.json", seconds)
        self.connect(json.loads(self.port_text)["ws_port"], "/session")
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self.context = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def note(self, event):
        if event.get("method") == "log.entryAdded":
            self.said.append(event["params"]["text"] or "exception")

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.call("script.evaluate", expression=script, target={"context": self.context}, awaitPromise=True,
                           serializationOptions={"maxObjectDepth": 20})
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return of_remote(result["result"])

    def open(self, address):
        """Loads a page, and returns when it is there."""
        for url in "about:blank", address:
            self.call("browsingContext.navigate", context=self.context, url=url, wait="none")
            self.wait_for(lambda: self.is_at(url))

    def is_at(self, address):
        """Whether a page is there. Firefox's own wait for it can miss the end of a navigation between two of its processes."""
        try:
            return self.run("[document.readyState, location.href.split('#')[0]]") == ["complete", address.split("#")[0]]
        except RuntimeError:  # the old page is gone, and the new one is not there
            return False

    def size(self, width, height):
        self.call("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})

    def press(self, key):
        value = KEYS_OF_WEBDRIVER.get(key, key)
        self.call("input.performActions", context=self.context, actions=[
            {"type": "key", "id": "keyboard", "actions": [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")]}])

    def picture(self, path):
        data = self.call("browsingContext.captureScreenshot", context=self.context)["data"]
        Path(path).write_bytes(base64.b64decode(data))
