"""Models of speech: networks of torchaudio, scripted (DeepSpeech traced), with fewer layers than published."""
import torch

from corpus.record import Example, model, scripted, traced

FRAMES = 64


def lengths_of(batch: int, longest: int) -> torch.Tensor:
    return torch.tensor([longest - each for each in range(batch)])


@model()
def conformer(batch: int) -> Example:
    from torchaudio.models import Conformer
    module = Conformer(input_dim=80, num_heads=4, ffn_dim=128, num_layers=2, depthwise_conv_kernel_size=15)
    return scripted(module, torch.randn(batch, FRAMES, 80), lengths_of(batch, FRAMES))


@model()
def emformer(batch: int) -> Example:
    from torchaudio.models import Emformer
    module = Emformer(80, 4, 128, num_layers=2, segment_length=16, left_context_length=8, right_context_length=4)
    return scripted(module, torch.randn(batch, FRAMES + 4, 80), lengths_of(batch, FRAMES))


@model()
def wav2letter(batch: int) -> Example:
    from torchaudio.models import Wav2Letter
    return scripted(Wav2Letter(num_classes=20, input_type="mfcc", num_features=13), torch.randn(batch, 13, 2 * FRAMES))


@model()
def deep_speech(batch: int) -> Example:
    from torchaudio.models import DeepSpeech
    return traced(DeepSpeech(n_feature=20, n_hidden=128, n_class=20), torch.randn(batch, 1, FRAMES, 20))


@model()
def tacotron2(batch: int) -> Example:
    from torchaudio.models import Tacotron2
    module = Tacotron2(n_mels=20, symbol_embedding_dim=64, encoder_embedding_dim=64, encoder_n_convolution=2,
                       attention_rnn_dim=128, attention_hidden_dim=32, decoder_rnn_dim=128, prenet_dim=64,
                       postnet_embedding_dim=64, postnet_n_convolution=3)
    text = torch.randint(0, 148, (batch, 24))
    return scripted(module, text, lengths_of(batch, 24), torch.randn(batch, 20, FRAMES // 2),
                    torch.full((batch,), FRAMES // 2))


class TacotronInference(torch.nn.Module):
    """Synthesis: the decoder goes on until a gate says stop, or 40 frames."""

    def __init__(self, tacotron: torch.nn.Module) -> None:
        super().__init__()
        self.tacotron = tacotron

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.tacotron.infer(tokens, lengths)[0]


@model(trains=False)
def tacotron2_synthesis(batch: int) -> Example:
    from torchaudio.models import Tacotron2
    module = Tacotron2(n_mels=20, symbol_embedding_dim=64, encoder_embedding_dim=64, encoder_n_convolution=2,
                       attention_rnn_dim=128, attention_hidden_dim=32, decoder_rnn_dim=128, prenet_dim=64,
                       postnet_embedding_dim=64, postnet_n_convolution=3, decoder_max_step=40)
    return scripted(TacotronInference(module), torch.randint(0, 148, (batch, 24)), lengths_of(batch, 24))


@model()
def wav2vec2(batch: int) -> Example:
    from torchaudio.models import wav2vec2_model
    module = wav2vec2_model(
        extractor_mode="group_norm", extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2), (32, 2, 2)],
        extractor_conv_bias=False,
        encoder_embed_dim=64, encoder_projection_dropout=0.1, encoder_pos_conv_kernel=15, encoder_pos_conv_groups=4,
        encoder_num_layers=2, encoder_num_heads=4, encoder_attention_dropout=0.1, encoder_ff_interm_features=128,
        encoder_ff_interm_dropout=0.1, encoder_dropout=0.1, encoder_layer_norm_first=False, encoder_layer_drop=0.0,
        aux_num_out=20)
    return scripted(module, torch.randn(batch, 1600))


@model()
def wave_rnn(batch: int) -> Example:
    from torchaudio.models import WaveRNN
    module = WaveRNN(upsample_scales=[4, 4, 4], n_classes=32, hop_length=64, n_res_block=2, n_rnn=64, n_fc=64, n_hidden=32,
                     n_freq=20, n_output=32)
    return scripted(module, torch.randn(batch, 1, 64 * 8), torch.randn(batch, 1, 20, 12))


@model()
def conv_tasnet(batch: int) -> Example:
    from torchaudio.models import ConvTasNet
    module = ConvTasNet(num_sources=2, enc_kernel_size=16, enc_num_feats=64, msk_kernel_size=3, msk_num_feats=32,
                        msk_num_hidden_feats=64, msk_num_layers=3, msk_num_stacks=2)
    return scripted(module, torch.randn(batch, 1, 2000))


@model()
def rnn_transducer(batch: int) -> Example:
    from torchaudio.models.rnnt import emformer_rnnt_model
    module = emformer_rnnt_model(
        input_dim=40, encoding_dim=64, num_symbols=20, segment_length=16, right_context_length=4,
        time_reduction_input_dim=32, time_reduction_stride=4, transformer_num_heads=4, transformer_ffn_dim=128,
        transformer_num_layers=2, transformer_dropout=0.1, transformer_activation="gelu", transformer_left_context_length=8,
        transformer_max_memory_size=0, transformer_weight_init_scale_strategy="depthwise", transformer_tanh_on_mem=True,
        symbol_embedding_dim=32, num_lstm_layers=2, lstm_layer_norm=True, lstm_layer_norm_epsilon=1e-3, lstm_dropout=0.1)
    return scripted(module, torch.randn(batch, FRAMES + 16, 40), lengths_of(batch, FRAMES), torch.randint(0, 20, (batch, 8)),
                    lengths_of(batch, 8), None)


class MelFeatures(torch.nn.Module):
    """Log mel spectra with masks over frequencies left out: what comes before a recognizer."""

    def __init__(self) -> None:
        super().__init__()
        import torchaudio
        self.mel = torchaudio.transforms.MelSpectrogram(16000, n_fft=256, n_mels=40)
        self.decibels = torchaudio.transforms.AmplitudeToDB()
        self.deltas = torchaudio.transforms.ComputeDeltas()

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        features = self.decibels(self.mel(wave))
        deltas = self.deltas(features)
        both = torch.cat([features, deltas], 1)
        return (both - both.mean(-1, keepdim=True)) / (both.std(-1, keepdim=True) + 1e-5)


@model(trains=False)
def mel_features(batch: int) -> Example:
    return scripted(MelFeatures(), torch.randn(batch, 8000))
