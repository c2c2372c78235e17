/* Where byte-level BPE vocabularies cut words: facts from the models' tokenizer.json files, in the
 * form in which llama.cpp applies them (its simplifications decide the ids), for PCRE2 with UTF and
 * UCP. Two of its habits show here: cased letter categories count as \p{L}, and characters beyond
 * ASCII that are white space match \s and nothing else. */
#include "base/base.h"
#include "formats/tokenizer_pre.h"

#define APOSTROPHE  "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define SUFFIX      "(?:" APOSTROPHE ")"
#define SPACES      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SYMBOLS     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LETTERS     "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3      SUFFIX "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS "|" SPACES
#define QWEN2       SUFFIX "|" LETTERS "|\\p{N}|" SYMBOLS "|" SPACES
#define NEWLINES    "[^\\n]+|[\\n]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES

/* The two kinds of word in o200k: upper case* lower case+, upper case+ lower case*. Only ASCII
 * letters have a case here, the others count as both. [^\P{L}a-z] is a letter outside a-z. */
#define CASED(s)                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}a-z]*[^\\P{L}A-Z]+" s                                           \
    "|[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}a-z]+[^\\P{L}A-Z]*" s
#define SLASHES     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
/* The same where marks count as letters, of any case. */
#define MARKED      "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"
#define NOT_LOWER   "(?:(?![a-z])[\\p{L}\\p{M}])"
#define NOT_UPPER   "(?:(?![A-Z])[\\p{L}\\p{M}])"

#define CJK         "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
/* U+0800 to U+9FA5 and Hangul, without the white space in between. */
#define DEEPSEEK_CJK                                                                               \
    "[\\x{800}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"                 \
    "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+"
#define HAN                                                                                        \
    "[\\x{3400}-\\x{4DBF}\\x{4E00}-\\x{9FFF}\\x{F900}-\\x{FAFF}\\x{20000}-\\x{2A6DF}"              \
    "\\x{2A700}-\\x{2EBEF}\\x{2F800}-\\x{2FA1F}]"
/* Letters of scripts with case. */
#define DEEPSEEK_LETTERS \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}" \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}" \
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}" \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}" \
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}" \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}" \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}" \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}" \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}" \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}" \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}" \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}" \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}" \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}" \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}" \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}" \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
/* From U+8C48 on it reaches further than meant (U+F900 was): so it stands there. */
#define AFMOE_CJK \
    "\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}" \
    "\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}" \
    "\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}" \
    "\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}"

#define IGNORE_MERGES TOKENIZER_PRE_IGNORE_MERGES
#define ADD_BOS       TOKENIZER_PRE_ADD_BOS
#define RAW           TOKENIZER_PRE_RAW
#define ESCAPE_SPACES TOKENIZER_PRE_ESCAPE_SPACES
#define GEMMA4        TOKENIZER_PRE_GEMMA4

const struct tokenizer_pre_row tokenizer_pre_tab[] = {
    {"default", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     IGNORE_MERGES | ADD_BOS, {LLAMA3}},
    {"dbrx smaug-bpe glm4 chatglm-bpe", 0, {LLAMA3}},
    {"jais-2", 0,
     {SUFFIX "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS
       "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"
       "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    /* "\s+$", but a run of white space that does not reach the end is skipped at once: tried from
     * each of its characters it takes quadratic time where PCRE2 has no JIT. U+3000 is white space
     * and left out of the punctuation. */
    {"deepseek-llm", 0,
     {"[\\r\\n]",
      "\\s?[" DEEPSEEK_LETTERS "]+",
      "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3001}-\\x{3002}]+",
      "\\s++(?:$|(*SKIP)(*FAIL))",
      DEEPSEEK_CJK,
      "\\p{N}+"}},
    {"deepseek-coder", 0,
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm", 0, {"\\p{N}{1,3}", CJK, DEEPSEEK3}},
    {"youtu", IGNORE_MERGES,
     {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+"
       "|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}"
       "\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" CJK,
      MARKED SUFFIX "?|\\p{N}|" SLASHES "|" SPACES}},
    {"falcon", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", 0,
     {"\\p{N}", GPT2}},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe "
     "gigachat a.x-4.0 mellum modern-bert mpt olmo jais exaone4 trillion granite-docling", 0,
     {GPT2}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"qwen35", 0,
     {SUFFIX "|" MARKED "|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"poro-chat bloom gpt3-finnish", 0,
     {" ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"}},
    {"viking", 0,
     {" ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+",
      "\\p{N}"}},
    {"tekken", IGNORE_MERGES | ADD_BOS, {CASED("") "|\\p{N}|" SLASHES "|" SPACES}},
    {"chameleon", ADD_BOS,
     {"<sentinel:[0-9]+>",
      "(?:IMGIMG)[A-I]{1,4}Z",
      "[\\t\\n]|    |  ",
      "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]",
      GPT2}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0,
     {CASED(SUFFIX "?") "|\\p{N}{1,3}|" SLASHES "|" SPACES}},
    {"granite-embed-multi-97m", IGNORE_MERGES,
     {"[^\\r\\n\\p{L}\\p{N}]?" NOT_LOWER "*" NOT_UPPER "+" SUFFIX
       "?|[^\\r\\n\\p{L}\\p{N}]?" NOT_LOWER "+" NOT_UPPER "*" SUFFIX "?|\\p{N}{1,3}|" SLASHES
       "|" SPACES}},
    {"tiny_aya cohere2moe", TOKENIZER_PRE_THREES_AFTER,
     {"\\p{N}+",
      MARKED SUFFIX "?|\\p{N}{1,3}|" SLASHES "|" SPACES}},
    {"superbpe", TOKENIZER_PRE_THREES_BEFORE, {"[0-9]+", "\\p{N}+"}},
    {"bailingmoe bailingmoe2 llada-moe", 0,
     {SUFFIX "|" LETTERS "|\\p{N}|" SYMBOLS "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder", 0,
     {SUFFIX "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"kimi-k2", 0,
     {HAN "+|[^\\r\\n\\p{L}\\p{N}]?(?:(?!" HAN ")\\p{L})++" SUFFIX "?|\\p{N}{1,3}|" SYMBOLS
       "|" SPACES}},
    {"afmoe", TOKENIZER_PRE_THREES_AFTER,
     {"\\p{N}+", "[" AFMOE_CJK "]+", DEEPSEEK3}},
    {"laguna", 0, {NEWLINES, QWEN2}},
    {"exaone-moe", 0,
     {SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:[\\p{L}\\p{M}]++| \\p{L})*+|\\p{N}"
       "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"gemma4 granite-embed-multi-311m", RAW | ESCAPE_SPACES | GEMMA4, {NEWLINES}},
    {"sarvam-moe", RAW | ESCAPE_SPACES, {NEWLINES}},
    {"minicpm5", IGNORE_MERGES,
     {"\\p{N}{1,3}", SUFFIX "|" LETTERS "|\\p{N}+|" SYMBOLS "|" SPACES}},
};
const size_t tokenizer_pre_tab_n = ARRAY_LEN(tokenizer_pre_tab);

/* The reference cuts by Unicode 15.1, PCRE2 10.42 knows 14.0: younger characters are shown to the
 * patterns as an older one of the same category and length. And U+180E, which Unicode took out of
 * White_Space, but PCRE2 keeps in \s, is shown as another format character. */
const struct tokenizer_stand_in tokenizer_stand_in_tab[] = {
    {0x0CF3, 0x0CF3, 0x0C82}, /* M, 3 bytes */
    {0x0ECE, 0x0ECE, 0x0ECD},
    {0x180E, 0x180E, 0x200B}, /* Cf */
    {0x2FFC, 0x2FFF, 0x2FF0}, /* S, 3 bytes */
    {0x31EF, 0x31EF, 0x2FF0},
    {0x10EFD, 0x10EFF, 0x1D165}, /* M, 4 bytes */
    {0x1123F, 0x11240, 0x10000}, /* L, 4 bytes */
    {0x11241, 0x11241, 0x1D165},
    {0x11B00, 0x11B09, 0x10100}, /* P, 4 bytes */
    {0x11F00, 0x11F01, 0x1D165},
    {0x11F02, 0x11F02, 0x10000},
    {0x11F03, 0x11F03, 0x1D165},
    {0x11F04, 0x11F10, 0x10000},
    {0x11F12, 0x11F33, 0x10000},
    {0x11F34, 0x11F3A, 0x1D165},
    {0x11F3E, 0x11F42, 0x1D165},
    {0x11F43, 0x11F4F, 0x10100},
    {0x11F50, 0x11F59, 0x1D7CE}, /* N, 4 bytes */
    {0x1342F, 0x1342F, 0x10000},
    {0x13440, 0x13440, 0x1D165},
    {0x13441, 0x13446, 0x10000},
    {0x13447, 0x13455, 0x1D165},
    {0x1B132, 0x1B132, 0x10000},
    {0x1B155, 0x1B155, 0x10000},
    {0x1D2C0, 0x1D2D3, 0x1D7CE},
    {0x1DF25, 0x1DF2A, 0x10000},
    {0x1E030, 0x1E06D, 0x10000},
    {0x1E08F, 0x1E08F, 0x1D165},
    {0x1E4D0, 0x1E4EB, 0x10000},
    {0x1E4EC, 0x1E4EF, 0x1D165},
    {0x1E4F0, 0x1E4F9, 0x1D7CE},
    {0x1F6DC, 0x1F6DC, 0x1F300}, /* S, 4 bytes */
    {0x1F774, 0x1F776, 0x1F300},
    {0x1F77B, 0x1F77F, 0x1F300},
    {0x1F7D9, 0x1F7D9, 0x1F300},
    {0x1FA75, 0x1FA77, 0x1F300},
    {0x1FA87, 0x1FA88, 0x1F300},
    {0x1FAAD, 0x1FAAF, 0x1F300},
    {0x1FABB, 0x1FABD, 0x1F300},
    {0x1FABF, 0x1FABF, 0x1F300},
    {0x1FACE, 0x1FACF, 0x1F300},
    {0x1FADA, 0x1FADB, 0x1F300},
    {0x1FAE8, 0x1FAE8, 0x1F300},
    {0x1FAF7, 0x1FAF8, 0x1F300},
    {0x2B739, 0x2B739, 0x2B738}, /* L, and Han like its neighbours */
    {0x2EBF0, 0x2EE5D, 0x10000},
    {0x31350, 0x323AF, 0x10000},
};
const size_t tokenizer_stand_in_tab_n = ARRAY_LEN(tokenizer_stand_in_tab);
