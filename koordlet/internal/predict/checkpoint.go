// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/policy/predict"
)

// checkpoint is one model in the format of upstream's files (koordinator-node.md §7.3):
//
//	{"UID":"__node__","LastUpdated":"2026-05-02T09:30:00Z",
//	 "CPU":{"referenceTimestamp":"2026-05-02T00:00:00Z","bucketWeights":{"3":10000,"9":5000},"totalWeight":1500.5},
//	 "Memory":{…}}
type checkpoint struct {
	UID         string
	LastUpdated time.Time
	CPU, Memory histogram
}

type histogram struct {
	ReferenceTimestamp time.Time      `json:"referenceTimestamp"`
	BucketWeights      map[int]uint32 `json:"bucketWeights,omitempty"`
	TotalWeight        float64        `json:"totalWeight,omitempty"`
}

// maxUID bounds keys; a UID has 36 characters.
const maxUID = 253

// ParseCheckpoint reads one model, upstream's or ours. Whether its figures can be true is for predict.Set.Restore to say.
func ParseCheckpoint(b []byte) (predict.Checkpoint, error) {
	var c checkpoint
	if err := json.Unmarshal(b, &c); err != nil {
		return predict.Checkpoint{}, fmt.Errorf("parse checkpoint: %w", err)
	}
	if c.UID == "" || len(c.UID) > maxUID {
		return predict.Checkpoint{}, fmt.Errorf("parse checkpoint: UID has %d characters, want 1..%d", len(c.UID), maxUID)
	}
	updated := wall(c.LastUpdated)
	if updated == 0 {
		return predict.Checkpoint{}, errors.New("parse checkpoint of " + c.UID + ": no LastUpdated")
	}
	return predict.Checkpoint{Key: predict.Key(c.UID), Updated: updated, CPU: c.CPU.value(), Memory: c.Memory.value()}, nil
}

// FormatCheckpoint writes one model, with times in whole seconds as upstream has them.
func FormatCheckpoint(c predict.Checkpoint) ([]byte, error) {
	b, err := json.Marshal(&checkpoint{UID: string(c.Key), LastUpdated: utc(c.Updated), CPU: text(c.CPU), Memory: text(c.Memory)})
	if err != nil {
		return nil, fmt.Errorf("format checkpoint of %s: %w", c.Key, err)
	}
	return b, nil
}

func (h histogram) value() predict.Distribution {
	return predict.Distribution{Reference: wall(h.ReferenceTimestamp), Weights: h.BucketWeights, Total: h.TotalWeight}
}

func text(d predict.Distribution) histogram {
	return histogram{ReferenceTimestamp: utc(d.Reference), BucketWeights: d.Weights, TotalWeight: d.Total}
}

// wall keeps the zero time zero. A part of a second is dropped as in utc, so that what is written reads back as the same.
func wall(t time.Time) predict.Wall {
	t = t.Truncate(time.Second)
	if t.IsZero() {
		return 0
	}
	return predict.Wall(t.UnixMicro())
}

func utc(w predict.Wall) time.Time {
	if w == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(w)).UTC().Truncate(time.Second)
}
