"""Language, vision and speech models of transformers with small configurations, traced."""
from typing import Any, Callable

import torch

from corpus.record import Example, add, traced

LENGTH, VOCABULARY = 48, 1000
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 512}
DECODER = SMALL | {"num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0, "head_dim": 32}
WIDTHS = {key: value for key, value in SMALL.items() if key != "vocab_size"}
VISION = WIDTHS | {"image_size": 64, "patch_size": 16}

# The classes of a configuration and a model, and the configuration's fields. The input is tokens, an image or a wave.
LANGUAGE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", SMALL),
    "roberta": ("RobertaConfig", "RobertaModel", SMALL),
    "distilbert": ("DistilBertConfig", "DistilBertModel",
                   {"vocab_size": VOCABULARY, "dim": 128, "n_layers": 3, "n_heads": 4, "hidden_dim": 512}),
    "albert": ("AlbertConfig", "AlbertModel", SMALL | {"embedding_size": 32}),
    "electra": ("ElectraConfig", "ElectraModel", SMALL | {"embedding_size": 32}),
    "mobilebert": ("MobileBertConfig", "MobileBertModel",
                   SMALL | {"intra_bottleneck_size": 32, "embedding_size": 32, "num_feedforward_networks": 2}),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel", SMALL | {"embedding_size": 128}),
    "deberta_v2": ("DebertaV2Config", "DebertaV2Model",
                   SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "fnet": ("FNetConfig", "FNetModel", {key: value for key, value in SMALL.items() if key != "num_attention_heads"}),
    "gpt2": ("GPT2Config", "GPT2Model", {"vocab_size": VOCABULARY, "n_embd": 128, "n_layer": 3,
                                          "n_head": 4, "use_cache": False}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXModel", SMALL | {"use_cache": False}),
    "opt": ("OPTConfig", "OPTModel", {"vocab_size": VOCABULARY, "hidden_size": 128, "ffn_dim": 512, "num_hidden_layers": 3,
                                      "num_attention_heads": 4, "word_embed_proj_dim": 128, "use_cache": False}),
    "llama": ("LlamaConfig", "LlamaModel", DECODER),
    "mistral": ("MistralConfig", "MistralModel", DECODER),
    "qwen2": ("Qwen2Config", "Qwen2Model", DECODER),
    "t5_encoder": ("T5Config", "T5EncoderModel",
                   {"vocab_size": VOCABULARY, "d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 3, "num_heads": 4}),
}
IMAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "hf_vit": ("ViTConfig", "ViTModel", VISION),
    "hf_deit": ("DeiTConfig", "DeiTModel", VISION),
    "hf_dinov2": ("Dinov2Config", "Dinov2Model", VISION),
    "clip_vision": ("CLIPVisionConfig", "CLIPVisionModel", VISION),
    "segformer": ("SegformerConfig", "SegformerModel", {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1]}),
}


class FirstOutput(torch.nn.Module):
    """The last hidden states alone, of what a model returns as an object."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs)[0]


def transformer(config: str, name: str, fields: dict[str, Any], inputs: Callable[[int], torch.Tensor]) -> Callable:
    def build(batch: int) -> Example:
        import transformers
        return traced(FirstOutput(getattr(transformers, name)(getattr(transformers, config)(**fields))), inputs(batch))
    return build


def tokens(batch: int) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (batch, LENGTH))


for each, parts in LANGUAGE.items():
    add(each, transformer(*parts, tokens))
for each, parts in IMAGES.items():
    add(each, transformer(*parts, lambda batch: torch.randn(batch, 3, 64, 64)))
add("hubert", transformer("HubertConfig", "HubertModel", WIDTHS | {
    "conv_dim": [32, 32, 32], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2], "num_conv_pos_embeddings": 15,
    "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 3}, lambda batch: torch.randn(batch, 1600)))
