"""The texts that the tokenizer's golden test encodes: written and generated here, from a fixed seed.

`corpus()` returns byte strings, `escape()` writes one as a line of tests/golden/tokens/corpus.txt:
printable characters stand for themselves, the others are \\n, \\r, \\t, \\\\ or \\xNN (one per byte).
"""

import random
import unicodedata

SEED = 20240607

WORDS = """time river stone engine quiet window Paris under mountain seventeen Quick letter between
yellow morning cluster memory token kernel machine LLM GPU README HTTPServer camelCase snake_case
don't I'll we've they're she's I'm you'd can't WON'T It'S o'clock rock'n'roll naïve café résumé
Zürich Łódź São fiancée cooperate co-operate e-mail state-of-the-art iPhone macOS 3rd 2nd x86_64
antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis the a of and to in is that
it was for on are as with his they at be this from or had by not but what some we out other were all
there when up use your how said each which their will way about many then them would write like so
these her long make thing see him two has look more day could go come did my sound no most number who
over know water than call first people may down side been now find any new work part take get place
made live where after back little only round man year came show every good me give our""".split()

SENTENCES = """The flock turned north before the wind did.|Nobody had told the lighthouse that the war was over.
How many bytes does a rank send per token?|"Stop," he said. "That's mine!"|It costs $4.99 (or £3.50) — cheap.
Visit https://example.org/a/b?x=1&y=%20z#frag or mail me@example.org.|Wait... what?! No way!!!
E = mc^2, and F=ma; p<0.05.|A/B testing: 50% off; 100% sure.|She whispered: 'go', then went.
We'll see; they'd've known.|I CAN'T BELIEVE IT'S ALREADY 2024!|Section 3.1.4(b)(ii) applies.
#hashtag @mention ~/path C:\\Users\\me|1,234,567.89 and -0.5e-10 and 0xDEADBEEF|a+b=c a-b a*b a/b a%b
snake_case and kebab-case and dot.case and SCREAMING_SNAKE_CASE|(nested [brackets {here} <and> there])
Temperature: -40°C = -40°F ± 0.5 µm² ½ ¾|“Curly quotes” and ‘single’ and «guillemets»|x₁² + y₂³ ≤ ∞ ∑∏∫√
Mr. O'Neill's dogs' toys weren't theirs.|'twas the night ''quoted'' '90s rock 'n' roll|'s 't 're 've 'm 'll 'd 'S 'T 'RE
The year's 1st, 2nd, 3rd, 4th... and 21st.|TODO(jane): fix this!!1!|yes/no/maybe;ok|==> <== -> <- => ::""".replace("\n", "|").split("|")

OTHER = """你好，世界！今天天气怎么样？|机器学习模型被分成若干层，分别放在不同的机器上。|我有3个苹果和12个橘子，共15个。
北京2024年6月7日（星期五）下午3点45分。|繁體中文：電腦、軟體、網路與資料庫。|「引號」、《书名》、【标题】……——！|价格：￥1,299.00元，打8.5折。
这是一个English和中文mixed的句子。|第一章　总则|𠀀𠀁𠮷野家𪚥㐀㐁鿿豈更|〇一二三四五六七八九十百千万亿
こんにちは、世界。今日はいい天気ですね。|カタカナとひらがなと漢字が混ざった文章です。|ﾊﾝｶｸｶﾅ　ｱｲｳｴｵ|東京タワーは333メートルです。
안녕하세요, 세계! 오늘 날씨가 어때요?|기계 학습 모델을 여러 대의 컴퓨터에 나눕니다.|ㄱㄴㄷ ㅏㅑㅓ ㅋㅋㅋ ㅠㅠ|가각간갇갈 힣
Привет, мир! Как дела сегодня?|Съешь ещё этих мягких французских булок, да выпей чаю.|Ёлка №5 — «ёжик»|ПРИВЕТ МиР
Γειά σου Κόσμε! Τι κάνεις;|Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.|Ὀδυσσεύς ἄνδρα μοι ἔννεπε|ΑΒΓΔ αβγδ
مرحبا بالعالم! كيف حالك اليوم؟|السعر ١٢٣٤٥٫٦٧ درهم|اَلْعَرَبِيَّةُ|سلام دنیا، حال شما چطور است؟|اردو میں لکھیے۔
שלום עולם! מה שלומך?|שָׁלוֹם עֲלֵיכֶם|नमस्ते दुनिया! आप कैसे हैं?|१२३४५ रुपये ५०%|क्ष त्र ज्ञ श्री कि की कु कू|हिन्दी में लिखिए।
বাংলা ভাষা খুব সুন্দর।|தமிழ் மொழி இனிமையானது|తెలుగు భాష|ಕನ್ನಡ ಭಾಷೆ ಗೌರವ ೧೨೩|മലയാളം ഭാഷ|ગુજરાતી ભાષા|ਪੰਜਾਬੀ ਭਾਸ਼ਾ|සිංහල භාෂාව
สวัสดีชาวโลก วันนี้อากาศเป็นอย่างไร|ราคา ๑,๒๓๔ บาท|ສະບາຍດີຊາວໂລກ|မင်္ဂလာပါ ကမ္ဘာ|សួស្តីពិភពលោក|བཀྲ་ཤིས་བདེ་ལེགས།
ሰላም ልዑል|გამარჯობა მსოფლიო ᲒᲐᲛᲐᲠᲯᲝᲑᲐ|Բարեւ աշխարհ|ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ|ᚠᚢᚦᚨᚱᚲ|𐌰𐌱𐌲 𐐀𐐨𐑏 𞤀𞤁𞤢|ꦗꦮ|ᠮᠣᠩᠭᠣᠯ
Xin chào thế giới! Tôi đang học tiếng Việt.|Đường phố Hà Nội rất đông|İstanbul'da ışıklı ğüşöç ı İ|Grüße aus München, Straße & Fuß
Voilà l'été où j'ai vu Noël à l'œuvre, n'est-ce pas ?|¿Cómo estás? ¡Muy bien! El niño|Příliš žluťoučký kůň úpěl|Zażółć gęślą jaźń
Åse på øya ærlig talt|Þetta reddast ð|ʻokina Hawaiʻi|ǅ ǈ ǋ ǲ ﬁ ﬂ ﬆ ﬓ ŉ ſt K Å""".replace("\n", "|").split("|")

CODE = """def f(x):
    if x > 0:
        return x ** 2  # square
    return None
#include <stdio.h>
int main(void) { printf("%d\\n", 42); return 0; }
for (int i = 0; i < n; i++) {
\ta[i] += b[i] * c[i];
\t\tif (!a[i]) continue;
}
const xs = [1,2,3].map(x => x*2).filter(Boolean);
SELECT id, name FROM users WHERE age >= 18 AND name LIKE '%o''neil%' ORDER BY id DESC;
<div class="a b" id='c'><p>Hello &amp; goodbye &#169;</p><br/></div>
{"key": [1, 2.5, -3e10, true, null], "s": "a\\u00e9\\n"}
$ grep -rn "foo\\|bar" src/ | awk '{print $1}' >> out.txt 2>&1
fn main() -> Result<(), Box<dyn Error>> { let x: &'static str = "hi"; Ok(()) }
public static void main(String[] args) throws Exception {
| a | b |
|---|:-:|
- [ ] item **bold** _it_ `code` [link](http://x.y)
```python
import numpy as np
```
x = y if z else w; print(f"{x!r:>10}")
#!/usr/bin/env bash
export PATH="$HOME/bin:$PATH" && [[ -f ~/.rc ]] || exit 1
\\begin{equation} \\frac{a}{b} = \\sum_{i=0}^{n} x_i \\end{equation}
0b1010 0o755 0xFFul 1_000_000 1e-9f 3.14159265358979
std::vector<std::pair<int, std::string>>& v = *this->m_[i];
@decorator(arg=1)
#define MAX(a,b) (((a)>(b))?(a):(b))
    .word 0x12345678 ; comment
; (define (fact n) (if (= n 0) 1 (* n (fact (- n 1)))))
|||>>>=<<<!==~^&&||??..::--++**//\\\\""".split("\n")

SPECIAL = """<|im_start|> <|im_end|> <|endoftext|> <|end_of_text|> <|begin_of_text|> <|eot_id|> <|eom_id|>
<|start_header_id|> <|end_header_id|> <s> </s> <unk> <pad> <bos> <eos> <start_of_turn> <end_of_turn> <|user|>
<|assistant|> <|system|> <|end|> [INST] [/INST] [TOOL_CALLS] <<SYS>> <</SYS>> <|fim_prefix|> <|fim_suffix|>
<|fim_middle|> <fim_prefix> <file_sep> <|channel|> <|message|> <|start|> <|return|> <think> </think> <tool_call>
</tool_call> <0x0A> <0xE4> <|python_tag|> <unused0> <unused98> <mask> <2mass> [@BOS@] <|constrain|> <image_soft_token>
<repo_name> <reponame> <gh_stars> <filename> <jupyter_start> <|pad|> <|tool|> <extra_id_0> <extra_id_99>
<\uff5cbegin\u2581of\u2581sentence\uff5c> <\uff5cend\u2581of\u2581sentence\uff5c> <\uff5cUser\uff5c> <|cut|> ab abc bcd""".split()

EMOJI = """😀 😂 🥰 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇯🇵 1️⃣ #️⃣ ❤️ ❤ ☺︎ 🫨 🩷 🩵 🩶 🫸 🪿 🫎 🪭 🛜 🤖 🐦‍⬛ 🧑🏿‍🚀 👁️‍🗨️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ✔️ © ® ™ ♾️ ⏭️ 🀄 🃏 🆒
⚡ ☕ ♿ ⛄ ✈️ ⬛ 〰️ ㊗️""".split()

# Texts that single rules of one tokenizer turn on.
CORNERS = ["a  <mask> b", " <mask>", "x\n<mask><mask>  y", "x \n<|end|>  y", "<s> x</s>  y", "\ua66e", "\ua66e\ua66e \ua66e\ua66e\ua66e", "\uff21",
           "\uff21b \uff22bc \uff21bc", "x  123", "x  1234", "x\n\n123456", "a\u3000\u3001b", "\u3001\u3000\u3001", " \u205f\u4e2d\u205f", "\u4e2d\u2009\u4e2d",
           "a \U0001fae8\U0001fa77 b", " \U0001fae8!", "\U0002ebf0a", "\u4e2d\U0002ebf0\u4e2d", "a\ua000b\ue000c", "\ua000 \ue000", "\u8c48a\uf900", "12\u0663456", "\u00b2\u00b312345"]

SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u200d\u2060\ufeff\x1c\x1f"
MARKS = "\u0300\u0301\u0308\u0327\u0335\u0489\u064b\u0651\u093c\u094d\u0e34\u20dd\u20e3\ufe0f\u0483\u0488\u1ab0\u0cf3\u0ece\u1d165"
DIGITS = "0123456789\u0660\u0665\u0967\u0e51\uff11\u00b2\u00b3\u00bd\u2164\u2460\u3007\u4e09\U0001d7d8\U0001d7ff\U00011f50"
YOUNG = "".join(map(chr, [0xcf3, 0xece, 0x2ffc, 0x31ef, 0x10efd, 0x1123f, 0x11241, 0x11b00, 0x11f02, 0x11f34, 0x11f43,
                          0x11f50, 0x13441, 0x13447, 0x1b155, 0x1d2c0, 0x1df25, 0x1e030, 0x1e08f, 0x1e4d0, 0x1e4ec,
                          0x1e4f0, 0x1f6dc, 0x1f774, 0x1f7d9, 0x1fa75, 0x1fa87, 0x1fae8, 0x1faf7, 0x2b739, 0x2ebf0,
                          0x2ee5d, 0x31350, 0x323af]))
BROKEN = [b"\x80", b"\xff", b"\xfe\xff", b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xe4", b"\xbf\xbf", b"\xc3\xc3\xa9", b"\xf0\x9f", b"\xf8"]


def pool_of(rng):
    """Assigned characters of every script, weighted towards small code points."""
    blocks = [(0x20, 0x7f), (0xa0, 0x250), (0x250, 0x370), (0x370, 0x600), (0x600, 0x1100), (0x1100, 0x2000),
              (0x2000, 0x2c00), (0x2c00, 0x3400), (0x3400, 0xa000), (0xa000, 0xd7a4), (0xe000, 0x10000),
              (0x10000, 0x1f000), (0x1f000, 0x1fb00), (0x20000, 0x323b0)]
    lo, hi = rng.choice(blocks)
    return chr(rng.randrange(lo, hi))


def generated(rng):
    words = lambda n: " ".join(rng.choice(WORDS) for _ in range(n))
    yield from ("".join(rng.choice(SPACES[:4] + SPACES) for _ in range(rng.randrange(1, 9))) + rng.choice(["", "a", "中", "1", "!", "\n"])
                for _ in range(160))
    for _ in range(160):  # white space between and around words
        yield "".join(rng.choice(WORDS) + "".join(rng.choice(SPACES[:4] * 3 + SPACES) for _ in range(rng.choice([1, 1, 2, 3, 5])))
                      for _ in range(rng.randrange(2, 7)))
    for n in list(range(1, 41)) + [63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 600, 1000]:
        yield " " * n + rng.choice(["", "x", "\n", "中"])
    for n in range(1, 24):
        yield "\n" * n + rng.choice(["", "x", " y"])
        yield "\t" * n + rng.choice(["", "x"])
        yield " \n" * n
        yield "a" * n + "A" * (n % 5)
        yield "1234567890123456789012345"[:n] + rng.choice(["", "x", " ", ".5", "²"])
        yield "x" * (n % 3) + "9" * n + rng.choice(["", "abc", "\n", "٣"])
    for _ in range(120):
        yield "".join(rng.choice(DIGITS[:10] * 2 + DIGITS) for _ in range(rng.randrange(1, 12))) + rng.choice(["", " ", "px", ",000"]) + \
            rng.choice(["", str(rng.randrange(10 ** 6)), words(1)])
    for _ in range(260):
        yield words(rng.randrange(1, 14)) + rng.choice(["", ".", "!", "?", " ", "\n", "...", ";"])
    for _ in range(120):  # contractions in every case, after anything
        yield rng.choice(["I", "we", "IT", "dog", "中", "é", "7", "", " ", "!", "ſ"]) + rng.choice(["'", "’", "''", " '"]) + \
            rng.choice("s t re ve m ll d S T Re vE LL D x sa ſ K lL r v l re's".split()) + rng.choice(["", " ", "x", "'s", "1", "\n"])
    for _ in range(120):  # case changes
        yield "".join(rng.choice("abXYZéÉßçžŽΣσДд中ªº'") for _ in range(rng.randrange(2, 14)))
    for _ in range(120):
        yield "".join(rng.choice(EMOJI + [" ", "a", "1", "中", "."]) for _ in range(rng.randrange(1, 7)))
    for _ in range(100):
        base = rng.choice(["e", "a", "क", "ا", "ก", "1", " ", "中", "!", ""])
        yield "".join(base + "".join(rng.choice(MARKS) for _ in range(rng.randrange(0, 4))) for _ in range(rng.randrange(1, 5)))
    for _ in range(90):
        yield "".join(rng.choice(["", " ", "a", "1", "!", "中"]) + rng.choice(YOUNG) for _ in range(rng.randrange(1, 6)))
    for _ in range(200):
        yield "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«»‘’“”…—、。「」！？～€£₿∀←█ \n\r/aZ0") for _ in range(rng.randrange(1, 16)))
    for _ in range(220):
        yield "".join(pool_of(rng) for _ in range(rng.randrange(1, 12)))
    for _ in range(200):  # special-token text, also overlapping and broken up
        parts = SPECIAL + [" ", "  ", "\n", "\n\n", "user", "Hello", "中", "a", "<", "|", ">"]
        yield "".join(rng.choice(parts) for _ in range(rng.randrange(1, 8)))
    for _ in range(60):
        yield "\n".join(rng.choice(CODE) for _ in range(rng.randrange(2, 8)))
    for _ in range(60):
        yield rng.choice([" ", "", "\n"]).join(rng.choice(OTHER + SENTENCES + WORDS) for _ in range(rng.randrange(2, 6)))
    for _ in range(40):
        yield words(rng.randrange(40, 120))


def corpus():
    rng = random.Random(SEED)
    texts = [""] + CORNERS + SENTENCES + OTHER + CODE + SPECIAL + EMOJI + list(SPACES) + list(YOUNG)
    texts += [unicodedata.normalize("NFD", t) for t in OTHER if unicodedata.normalize("NFD", t) != t]
    texts += list(generated(rng))
    out = [t.encode("utf-8", "surrogatepass") for t in texts]
    for _ in range(60):  # ill-formed UTF-8
        out.append(b"".join(rng.choice(BROKEN + [b"a", b" ", "é".encode(), "中".encode(), b"\n"]) for _ in range(rng.randrange(1, 6))))
    out.append(b"a\x00b")
    return list(dict.fromkeys(out))


def escape(text):
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
    out = []
    i = 0
    while i < len(text):
        for n in (1, 2, 3, 4):
            try:
                c = text[i:i + n].decode("utf-8")
                break
            except UnicodeDecodeError:
                c = None
        if c and len(c) == 1 and (c in named or c == " " or unicodedata.category(c)[0] not in "ZC"):
            out.append(named.get(c, c))
            i += n
        else:
            n = n if c and len(c) == 1 else 1
            out.append("".join("\\x%02x" % b for b in text[i:i + n]))
            i += n
    return "".join(out)
