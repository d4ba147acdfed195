// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration written as a Go duration string.
type Duration time.Duration

// Std is the time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is the Go duration string.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalJSON accepts a string such as "1s" or "250ms".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("want a duration string such as \"1s\"")
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("want a duration such as \"1s\", have %q", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }
