/* Files name few of their special tokens by id, so the others are known by their texts; the lists
 * are those of llama.cpp, which decides what ends an answer. */
#include "formats/tokenizer_impl.h"

const char *const tokenizer_end_texts[] = {
    "<|eot_id|>",      "<|eom_id|>",         "<|im_end|>",
    "<|endoftext|>",   "<|end_of_text|>",    "<end_of_turn>",
    "<eos>",           "</s>",               "<EOT>",
    "_<EOT>",          "[EOT]",              "[EOS]", /* Kimi K2 has the last two */
    "<|end|>",         "<|return|>",         "<|call|>", /* harmony: see find_ends */
    "<|calls|>",       "<|flush|>",          /* Solar Open */
    "<turn|>",         "<|tool_response>",   /* Gemma 4 */
    "[e~[",            /* MiniMax */
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>", /* DeepSeek */
};
const size_t tokenizer_end_texts_n = ARRAY_LEN(tokenizer_end_texts);

const struct tokenizer_fim tokenizer_fim_tab[] = {
    {"fim_pre_token_id", "prefix_token_id", false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
      "<|code_prefix|>", "<|prefix|>", NULL}},
    {"fim_suf_token_id", "suffix_token_id", false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
      "<|code_suffix|>", "<|suffix|>", NULL}},
    {"fim_mid_token_id", "middle_token_id", false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
      "<|code_middle|>", "<|middle|>", NULL}},
    {"fim_pad_token_id", NULL, true,
     {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", NULL}},
    {"fim_rep_token_id", NULL, true,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL}},
    {"fim_sep_token_id", NULL, true, {"<|file_sep|>", NULL}},
};
const size_t tokenizer_fim_tab_n = ARRAY_LEN(tokenizer_fim_tab);
