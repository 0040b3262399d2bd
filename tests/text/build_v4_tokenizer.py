#!/usr/bin/python3
"""Rebuilds the official tokenizer.json of DeepSeek-V4:  build_v4_tokenizer.py V3_JSON ADDED_JSON OUT

V4 differs from V3 in its added tokens alone.  The result is the published file byte for byte, or
nothing is written.
"""
import hashlib
import json
import os
import sys

SHA256 = "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"
# Special added tokens have "normalized": false, the others true, save the last seven of these, for
# tables, which begin here.
FIRST_TABLE_TOKEN = 129264
# This one line of the published file was indented by hand.
CROOKED = '"content": "<｜extracted_url｜>",'


def build(v3_path, added_path):
    with open(v3_path, encoding="utf-8") as f:
        tokenizer = json.load(f)
    with open(added_path, encoding="utf-8") as f:
        added = json.load(f)
    tokenizer["added_tokens"] = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": not special and number < FIRST_TABLE_TOKEN, "special": special}
        for number, text, special in added]
    text = json.dumps(tokenizer, indent=2, ensure_ascii=False)
    return text.replace(" " * 6 + CROOKED, " " * 5 + CROOKED).encode()


def main():
    v3_path, added_path, out_path = sys.argv[1:]
    data = build(v3_path, added_path)
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        sys.exit(f"{v3_path}, {added_path}: the result has SHA-256 {digest}, not {SHA256}")
    with open(out_path + ".part", "wb") as f:
        f.write(data)
    os.replace(out_path + ".part", out_path)


main()
