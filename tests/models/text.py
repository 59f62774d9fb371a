"""Text in models: tokenizers that work on TorchScript's strings and dicts."""
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe


class WordTokenizer(nn.Module):
    """Cleans text, cuts it into words, and turns words into numbers; words it does not know become characters."""

    def __init__(self) -> None:
        super().__init__()
        known = ["<pad>", "<unk>", "the", "a", "model", "runs", "fast", "and", "well", "don't", "12"]
        known += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
        self.numbers: Dict[str, int] = {word: i for i, word in enumerate(known)}
        self.words: List[str] = known
        self.embedding = nn.EmbeddingBag(len(known), 6, mode="sum")

    def clean(self, text: str) -> str:
        text = text.strip().lower().replace("\t", " ").replace("\n", " ")
        result = ""
        for letter in text:
            if letter.isalnum() or letter in " '":
                result += letter
            else:
                result += " " + letter + " "
        return result

    def encode(self, text: str) -> List[int]:
        numbers: List[int] = []
        for word in self.clean(text).split(" "):
            if len(word) == 0:
                continue
            if word in self.numbers:
                numbers.append(self.numbers[word])
            else:
                for letter in word:
                    numbers.append(self.numbers.get("##" + letter, 1))
        return numbers

    @torch.jit.export
    def decode(self, numbers: List[int]) -> str:
        """Letters are joined to words again."""
        words: List[str] = []
        last_was_letter = False
        for number in numbers:
            word = self.words[number]
            is_letter = word.startswith("##")
            if is_letter and last_was_letter:
                words[-1] = words[-1] + word[2:]
            elif is_letter:
                words.append(word[2:])
            else:
                words.append(word)
            last_was_letter = is_letter
        return " ".join(words)

    def forward(self, texts: List[str]) -> Tuple[Tensor, List[List[int]], List[str], Dict[str, int]]:
        encoded = [self.encode(text) for text in texts]
        counts: Dict[str, int] = {}
        offsets: List[int] = []
        flat: List[int] = []
        for text, numbers in zip(texts, encoded):
            offsets.append(len(flat))
            flat.extend(numbers)
            counts["{}: {} of {}".format(text[:3], len(numbers), len(text))] = counts.get(text, 0) + len(numbers)
        vectors = self.embedding(torch.tensor(flat, dtype=torch.long), torch.tensor(offsets, dtype=torch.long))
        return vectors, encoded, [self.decode(numbers) for numbers in encoded], counts


@recipe
def word_tokenizer() -> Sample:
    """text into words, words into numbers and vectors, and back"""
    return Sample(WordTokenizer(), [
        (["The model runs fast, and well!", "  a\tbig MODEL "],),
        (["12 models don't\nrun", "", "ünknown? (yes)"],),
        ([],),
    ])


class BytePairTokenizer(nn.Module):
    """Byte pair encoding (Sennrich, Haddow, Birch 2015): the most frequent pair of neighbors becomes one symbol."""

    def learn(self, text: str, merges: int) -> List[Tuple[str, str]]:
        learned: List[Tuple[str, str]] = []
        words = [list(word) for word in text.split()]
        for _ in range(merges):
            counts: Dict[str, int] = {}
            pairs: Dict[str, Tuple[str, str]] = {}
            for word in words:
                for left, right in zip(word[:-1], word[1:]):
                    name = left + " " + right
                    counts[name] = counts.get(name, 0) + 1
                    pairs[name] = (left, right)
            best = ""
            for name in sorted(counts.keys()):
                if best == "" or counts[name] > counts[best]:
                    best = name
            if best == "" or counts[best] < 2:
                break
            learned.append(pairs[best])
            words = [self.merge(word, pairs[best]) for word in words]
        return learned

    def merge(self, symbols: List[str], pair: Tuple[str, str]) -> List[str]:
        merged: List[str] = []
        i = 0
        while i < len(symbols):
            if i + 1 < len(symbols) and symbols[i] == pair[0] and symbols[i + 1] == pair[1]:
                merged.append(pair[0] + pair[1])
                i += 2
            else:
                merged.append(symbols[i])
                i += 1
        return merged

    def forward(self, corpus: str, text: str, merges: int) -> Tuple[List[Tuple[str, str]], List[str], List[List[int]], str]:
        learned = self.learn(corpus, merges)
        pieces: List[str] = []
        for word in text.split():
            symbols = list(word)
            for pair in learned:
                symbols = self.merge(symbols, pair)
            pieces.extend(symbols)
        codes = [[ord(letter) for letter in piece] for piece in pieces]
        restored = "|".join(["".join([chr(code) for code in piece]) for piece in codes])
        report = "%d merges, %s pieces, %f letters each" % (
            len(learned), str(len(pieces)), len(restored.replace("|", "")) / max(len(pieces), 1))
        return learned, pieces, codes, f"{report}: {restored.rjust(12)}"


@recipe
def byte_pairs() -> Sample:
    """byte pair encoding learned and applied in one call: no tensors at all"""
    corpus = "low lower lowest newer newest wider widest low low new new"
    return Sample(BytePairTokenizer(), [(corpus, "lowest wide", 10), (corpus, "now", 3), ("aa aa aaa", "aaaa a", 4),
                                        ("", "", 5)])
