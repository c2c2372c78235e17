"""The web page in a real Chromium: it shows the nodes and their layers, and its chat box streams an answer."""

import shutil
import time

import pytest

from harness import MODEL

selenium = pytest.importorskip("selenium")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402


@pytest.fixture(scope="module")
def browser():
    chrome, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chrome or not driver:
        pytest.skip("chromium and chromedriver are not installed")
    o = webdriver.ChromeOptions()
    o.binary_location = chrome
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-quic"):
        o.add_argument(flag)
    o.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    b = webdriver.Chrome(options=o, service=webdriver.ChromeService(driver))
    yield b
    b.quit()


def until(what, seconds, condition):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def test_page_shows_nodes_and_chats(two, browser):
    status, _ = two[0].request("/place_instance", {"model_id": MODEL, "min_nodes": 2})
    assert status == 200
    browser.get(two[1].url + "/")
    # in one go: the page draws its rows anew while it is looked at
    rows = lambda: browser.execute_script("return [...document.querySelectorAll('#nodes tr')].map(r => r.innerText)")  # noqa: E731
    until("two nodes with layers", 60, lambda: len(rows()) == 2 and all("of 30" in r for r in rows()))
    assert any("node1" in r for r in rows()) and any("node2" in r for r in rows())
    assert "2 nodes" in browser.find_element(By.ID, "cluster").text

    until("models to choose", 60, lambda: MODEL in browser.find_element(By.ID, "model").text)
    browser.find_element(By.CSS_SELECTOR, f"#model option[value='{MODEL}']").click()
    box = browser.find_element(By.ID, "text")
    box.send_keys("What is gravity?", Keys.ENTER)
    lines = lambda: [p.text for p in browser.find_elements(By.CSS_SELECTOR, "#log p")]  # noqa: E731
    until("an answer", 60, lambda: len(lines()) == 2 and len(lines()[1]) > 40)
    assert lines()[0] == "What is gravity?"
    until("the end of the answer or a while", 120, lambda: browser.find_element(By.ID, "send").text == "Send")
    assert "tokens/s" in browser.find_element(By.ID, "rate").text
    errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE" and "favicon" not in e["message"]]
    assert not errors, errors


def test_model_text_is_never_html(two, browser):
    browser.get(two[0].url + "/")
    until("models to choose", 60, lambda: MODEL in browser.find_element(By.ID, "model").text)
    browser.find_element(By.ID, "text").send_keys("<img src=x onerror=document.title='owned'>", Keys.ENTER)
    until("the question shown", 60, lambda: browser.find_elements(By.CSS_SELECTOR, "#log p.user"))
    assert browser.find_element(By.CSS_SELECTOR, "#log p.user").text.startswith("<img")
    assert not browser.find_elements(By.CSS_SELECTOR, "#log img") and browser.title == "skein"
