"""POP in the Trainer of Hugging Face: a small transformer on texts whose candidate labels are a list column of `datasets`."""

from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import oneof

TOPICS = {
    "sport": ["ball", "goal", "match", "team", "player", "win", "score", "race"],
    "music": ["song", "band", "guitar", "drum", "album", "singer", "tune", "concert"],
    "food": ["bread", "soup", "cook", "taste", "oven", "salt", "fruit", "dinner"],
    "travel": ["train", "hotel", "beach", "ticket", "map", "airport", "city", "journey"],
}
COMMON = ["the", "a", "of", "and", "we", "went", "with", "good"]
WORDS = ["[PAD]", "[CLS]", *COMMON, *(word for words in TOPICS.values() for word in words)]
LENGTH = 12


def make_texts(n, seed):
    """Make texts about a topic, each with its topic and some others as candidates."""
    random = np.random.default_rng(seed)
    rows = []
    for topic in random.choice(list(TOPICS), n):
        words = random.choice(TOPICS[topic] + COMMON, LENGTH - 1)
        others = [name for name in TOPICS if name != topic and random.random() < 0.4]
        rows.append({"text": " ".join(words), "candidates": [topic, *others], "topic": topic})
    return Dataset.from_list(rows)


def encode(row, index):
    tokens = [WORDS.index(word) for word in ["[CLS]", *row["text"].split()]]
    return {"input_ids": tokens, "index": index}


class CandidateTrainer(Trainer):
    """Trainer whose loss is a criterion of logits and row numbers."""

    def __init__(self, *args, criterion, **kwargs):
        super().__init__(*args, **kwargs)
        self.criterion = criterion.to(self.args.device)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        index = inputs.pop("index")
        outputs = model(**inputs)
        loss = self.criterion.train(model.training)(outputs.logits, index)
        return (loss, outputs) if return_outputs else loss


class Purify(TrainerCallback):
    """Purify at the end of an epoch; save the states beside the model's, and load them when training is resumed."""

    def __init__(self, purifier):
        self.parts = {"criterion": purifier.criterion, "purifier": purifier}

    def on_epoch_end(self, args, state, control, **kwargs):
        self.parts["purifier"].step()

    def on_save(self, args, state, control, **kwargs):
        states = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save(states, self.file(args, state))

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step > 0:  # resumed
            for name, saved in torch.load(self.file(args, state), weights_only=True).items():
                self.parts[name].load_state_dict(saved)

    def file(self, args, state):
        return Path(args.output_dir, f"checkpoint-{state.global_step}", "candidates.pt")


def main(output, epochs=8, resume=False):
    texts = make_texts(800, seed=0)
    sets = oneof.read(texts["candidates"], classes=list(TOPICS))
    data = texts.map(encode, with_indices=True, remove_columns=["text", "candidates", "topic"])
    set_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=len(TOPICS),
    )  # fmt: skip
    criterion = oneof.CandidateLoss("proden", sets)
    purifier = oneof.Purifier(oneof.Pop(warm_up=3, interval=2, window=2), criterion)
    arguments = TrainingArguments(
        output, num_train_epochs=epochs, per_device_train_batch_size=32, learning_rate=4e-3, use_cpu=True,
        remove_unused_columns=False,  # keeps the column of row numbers
        save_strategy="epoch", report_to="none", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = CandidateTrainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=data,
        criterion=criterion,
        callbacks=[Purify(purifier)],
    )
    trainer.train(resume_from_checkpoint=resume)
    tests = make_texts(400, seed=1)
    inputs = torch.tensor(tests.map(encode, with_indices=True)["input_ids"])
    with torch.no_grad():
        probabilities = trainer.model.eval()(input_ids=inputs).logits.softmax(1)
    predicted = sets.classes[probabilities.argmax(1)]
    accuracy = np.mean(predicted == np.array(tests["topic"]))
    size = criterion.candidates.sum(1).float().mean()
    print(f"accuracy {accuracy:.3f}, labels per set {size:.2f}")
    return trainer


if __name__ == "__main__":
    main("trained")
