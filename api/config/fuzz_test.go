// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config_test

import (
	"encoding/json"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
)

func FuzzDuration(f *testing.F) {
	f.Add([]byte(`"250ms"`))
	f.Add([]byte(`1`))
	f.Add([]byte(`"-9223372036854775808ns"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var d, again config.Duration
		if err := json.Unmarshal(text, &d); err != nil {
			return
		}
		out, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil || again != d {
			t.Fatalf("%s is %s, which is read as %s (%v)", text, d, again, err)
		}
	})
}
