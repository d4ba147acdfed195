// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// ExtensionHealth is the key among the extensions of colocation-config, of its node entries and of a node's annotation that says what
// nodes lend that are not sound.
const ExtensionHealth = "koord-rt.dev/lending-health"

// whole is the path of an error about a document that is no mapping.
const whole = "document"

// HealthStrategy is its value; nil means "not given". A later layer replaces the value as a whole.
type HealthStrategy struct {
	// Enable, default true. false lends out of every node by the formulas alone.
	Enable *bool `json:"enable,omitempty"`
	// StaleSeconds, >= 1, is the age from which a report counts for less; default a third of degradeTimeMinutes, and at least three
	// report intervals.
	StaleSeconds *int64 `json:"staleSeconds,omitempty"`
	// MarginPercent, 0..100, default 20, is the part of the node by which figures of a report may contradict each other;
	// ContradictionSeconds, >= 1, default 600, the time that they must; ContradictionPercent, 0..100, default 50, what is lent then.
	MarginPercent        *int64 `json:"marginPercent,omitempty"`
	ContradictionSeconds *int64 `json:"contradictionSeconds,omitempty"`
	ContradictionPercent *int64 `json:"contradictionPercent,omitempty"`
	// MemoryPressurePercent (default 0), DiskPressurePercent and PIDPressurePercent (50), 0..100, are what is lent under the kubelet's
	// condition of that name.
	MemoryPressurePercent *int64 `json:"memoryPressurePercent,omitempty"`
	DiskPressurePercent   *int64 `json:"diskPressurePercent,omitempty"`
	PIDPressurePercent    *int64 `json:"pidPressurePercent,omitempty"`
	// EvictionsPerHour, 0..1000, default 3, are evictions by koordlet that mean nothing.
	EvictionsPerHour *int64 `json:"evictionsPerHour,omitempty"`
	// RecoverySeconds, >= 1, default 300: after so long a node that is sound again gets a quarter back.
	RecoverySeconds *int64 `json:"recoverySeconds,omitempty"`
	// MemoryPressureWatermark, 1..400, no default: watermarkScaleFactor of nodes that are, or were of late, under MemoryPressure.
	MemoryPressureWatermark *int64 `json:"memoryPressureWatermarkScaleFactor,omitempty"`
}

// Health is what holds for one node, every default filled in.
type Health struct {
	Enable                                                         bool
	Stale, Contradicts, Recovery                                   time.Duration
	MarginPercent, ContradictionPercent                            int64
	MemoryPressurePercent, DiskPressurePercent, PIDPressurePercent int64
	EvictionsPerHour                                               int64
	// MemoryPressureWatermark is nil where the kernel's parameter is to be left alone.
	MemoryPressureWatermark *int64
}

// Health fills in the defaults. Problems are impossible for a strategy that was checked; the defaults hold then.
func (s *Colocation) Health() (Health, []Problem) {
	h, wrong := decodeHealth(s.Extensions[ExtensionHealth], "")
	var problems []Problem
	for _, f := range wrong {
		problems = append(problems, Problem{Key: KeyColocation, Path: f.Path, Err: f.Err})
	}
	stale := int64(max(s.Degrade/3, 3*s.Report) / time.Second)
	return Health{
		Enable: or(h.Enable, true), Stale: seconds(h.StaleSeconds, stale), Contradicts: seconds(h.ContradictionSeconds, 600),
		Recovery: seconds(h.RecoverySeconds, 300), MarginPercent: or(h.MarginPercent, 20), ContradictionPercent: or(h.ContradictionPercent, 50),
		MemoryPressurePercent: or(h.MemoryPressurePercent, 0), DiskPressurePercent: or(h.DiskPressurePercent, 50),
		PIDPressurePercent: or(h.PIDPressurePercent, 50), EvictionsPerHour: or(h.EvictionsPerHour, 3),
		MemoryPressureWatermark: h.MemoryPressureWatermark,
	}, problems
}

// decodeHealth reads and checks a value, all of it or nothing; prefix is the path of the strategy that has it.
func decodeHealth(text json.RawMessage, prefix string) (HealthStrategy, []strategy.FieldError) {
	if len(text) == 0 {
		return HealthStrategy{}, nil
	}
	prefix += "extensions." + ExtensionHealth
	doc, err := document(string(text))
	if err != nil {
		return HealthStrategy{}, []strategy.FieldError{{Path: prefix, Err: err}}
	}
	var h HealthStrategy
	var wrong []strategy.FieldError
	for _, e := range split(doc.Decode(&h)) {
		var f strategy.FieldError
		if !errors.As(e, &f) {
			f = strategy.FieldError{Err: e}
		}
		path := prefix
		if f.Path != "" && f.Path != whole {
			path += "." + f.Path
		}
		wrong = append(wrong, strategy.FieldError{Path: path, Err: f.Err}) // its line is that of a text that nobody has written
	}
	if len(wrong) == 0 {
		wrong = checkHealth(h, prefix+".")
	}
	if len(wrong) > 0 {
		return HealthStrategy{}, wrong
	}
	return h, nil
}

func checkHealth(h HealthStrategy, path string) []strategy.FieldError {
	c := &checker{prefix: path}
	c.between("staleSeconds", h.StaleSeconds, 1, maxSeconds)
	c.between("marginPercent", h.MarginPercent, 0, 100)
	c.between("contradictionSeconds", h.ContradictionSeconds, 1, maxSeconds)
	c.between("contradictionPercent", h.ContradictionPercent, 0, 100)
	c.between("memoryPressurePercent", h.MemoryPressurePercent, 0, 100)
	c.between("diskPressurePercent", h.DiskPressurePercent, 0, 100)
	c.between("pidPressurePercent", h.PIDPressurePercent, 0, 100)
	c.between("evictionsPerHour", h.EvictionsPerHour, 0, 1000)
	c.between("recoverySeconds", h.RecoverySeconds, 1, maxSeconds)
	c.between("memoryPressureWatermarkScaleFactor", h.MemoryPressureWatermark, 1, 400)
	return c.errs
}
