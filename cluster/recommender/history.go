// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

// The text of a container's history, fifteen words: the version; for CPU and memory when it was last measured, for how long, how often,
// the reference time, the total weight and the weights (bucket:weight, with commas, - for none); the open peak in bytes and since when.
// Times are microseconds since 1970. About 600 bytes.
const historyVersion, historyWords, maxHistory = "1", 15, 8 << 10

func formatHistory(h *recommend.History) string {
	words := []string{historyVersion}
	for _, s := range []*recommend.Series{&h.CPU, &h.Memory} {
		words = append(words, whole(s.Seen), whole(s.Measured), number(s.Samples), whole(s.Reference), number(s.Total), weights(s.Weights))
	}
	return strings.Join(append(words, number(h.Peak), whole(h.Since)), " ")
}

func whole[T ~int64](v T) string { return strconv.FormatInt(int64(v), 10) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func weights(w map[int]uint32) string {
	if len(w) == 0 {
		return "-"
	}
	parts := make([]string, 0, len(w))
	for _, i := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, strconv.Itoa(i)+":"+strconv.FormatUint(uint64(w[i]), 10))
	}
	return strings.Join(parts, ",")
}

// parseHistory reads what formatHistory has written. Whether the figures can be is checked by recommend.Restore.
func parseHistory(container, text string) (recommend.History, error) {
	h := recommend.History{Container: container}
	if len(text) > maxHistory {
		return h, fmt.Errorf("container %.60q: %d bytes, want at most %d", container, len(text), maxHistory)
	}
	w := words{list: strings.Split(text, " ")}
	if len(w.list) != historyWords || w.list[0] != historyVersion {
		return h, fmt.Errorf("container %.60q: %d words of version %.20q, want %d of version %s", container, len(w.list), w.list[0], historyWords, historyVersion)
	}
	w.next()
	for _, s := range []*recommend.Series{&h.CPU, &h.Memory} {
		s.Seen, s.Measured, s.Samples = predict.Wall(w.int()), unit.Micros(w.int()), w.float()
		s.Reference, s.Total, s.Weights = predict.Wall(w.int()), w.float(), w.weights()
	}
	h.Peak, h.Since = w.float(), predict.Wall(w.int())
	if w.err != nil {
		return h, fmt.Errorf("container %.60q: %w", container, w.err)
	}
	return h, nil
}

// words are taken one after the other; the first that cannot be read is the error.
type words struct {
	list []string
	err  error
}

func (w *words) next() string {
	out := w.list[0]
	w.list = w.list[1:]
	return out
}

func (w *words) fail(text string) {
	if w.err == nil {
		w.err = fmt.Errorf("%.60q cannot be read", text)
	}
}

func (w *words) int() int64 {
	text := w.next()
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.fail(text)
	}
	return v
}

func (w *words) float() float64 {
	text := w.next()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		w.fail(text)
	}
	return v
}

func (w *words) weights() map[int]uint32 {
	text := w.next()
	if text == "-" {
		return nil
	}
	out := map[int]uint32{}
	for part := range strings.SplitSeq(text, ",") {
		bucket, weight, _ := strings.Cut(part, ":")
		i, err := strconv.ParseUint(bucket, 10, 16)
		v, err2 := strconv.ParseUint(weight, 10, 32)
		if _, twice := out[int(i)]; err != nil || err2 != nil || twice { //nolint:gosec // 16 bits
			w.fail(part)
			return nil
		}
		out[int(i)] = uint32(v) //nolint:gosec // 16 and 32 bits
	}
	return out
}
