// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Identity of the kinds.
const (
	Group          = "slo.koordinator.sh"
	APIVersion     = Group + "/v1alpha1"
	KindNodeSLO    = "NodeSLO"
	KindNodeMetric = "NodeMetric"
)

// Meta is the part of an object's metadata that the node reads.
type Meta struct {
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Generation      int64  `json:"generation,omitempty"`
}

// Time is an instant as Kubernetes writes it: RFC 3339 in UTC, whole seconds; the zero value is null.
type Time struct{ time.Time }

// At is t as it will be read back.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Second)} }

// MarshalJSON writes RFC 3339, null for the zero time.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(t.UTC().Format(time.RFC3339))
}

// UnmarshalJSON reads RFC 3339 or null.
func (t *Time) UnmarshalJSON(data []byte) error {
	*t = Time{}
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("decode time: %w", err)
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("decode time: %w", err)
	}
	at := At(parsed)
	if year := at.Year(); year < 0 || year > 9999 {
		return fmt.Errorf("decode time: %.60q: in UTC its year is %d, which RFC 3339 cannot write", text, year)
	}
	*t = at
	return nil
}

// Duration is a span as Kubernetes writes it: "5m0s".
type Duration time.Duration

// MarshalJSON writes "5m0s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads "5m", "300s".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("decode duration: %w", err)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("decode duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}
