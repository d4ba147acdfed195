// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// TestBounds: the schema of a NodeSLO's spec refuses what api/strategy refuses, field by field, and nothing else. Rules between
// fields are tried against the API server (test/lab/cluster).
func TestBounds(t *testing.T) {
	t.Parallel()
	tried := 0
	root(t, "nodeslos.slo.koordinator.sh").at("spec").walk("", func(path string, s *schema) {
		if path == "" || s.Preserve {
			return
		}
		try := func(value any, want bool) {
			tried++
			if err := strategyTakes(t, path, value); (err == nil) != want {
				t.Errorf("%s: %v: the schema takes it: %v, api/strategy says %v", path, value, want, err)
			}
		}
		switch s.kind() {
		case "integer":
			low, high := -1000.0, float64(1<<30)
			if s.Minimum != nil {
				low = *s.Minimum
				try(low-1, false)
			}
			if s.Maximum != nil {
				high = *s.Maximum
				try(high+1, false)
			}
			if strings.HasSuffix(path, ".memoryEvictLowerPercent") {
				high = 69 // below the default of its threshold
			}
			try(low, true)
			try(high, true)
		case "string":
			for _, e := range s.Enum {
				try(e, true)
			}
			if len(s.Enum) > 0 {
				try("no such word", false)
			}
		case "int-or-string":
			for _, v := range []string{"10M", "0", "1.5Gi", ".5", "+5", "1e3", "1E-3", "100m", "-10M", "much", "", "1.2.3", "1Gib", "5 k"} {
				try(v, regexp.MustCompile(s.Pattern).MatchString(v))
			}
		}
	})
	if tried < 300 {
		t.Errorf("%d values tried", tried)
	}
}

// strategyTakes says what api/strategy makes of an object in which only that place is set.
func strategyTakes(t *testing.T, path string, value any) error {
	t.Helper()
	steps := strings.Split(path, ".")
	for i := len(steps) - 1; i >= 0; i-- {
		name, list := strings.CutSuffix(steps[i], "[]")
		switch {
		case list && name == "blocks":
			value = []any{with(value, map[string]any{"name": "sda", "type": "device"})}
		case list && name == "hostApplications":
			value = []any{with(value, map[string]any{"name": "app"})}
		case list || strings.HasSuffix(name, "{}"):
			t.Fatalf("%s: give %s what it needs", path, steps[i])
		}
		value = map[string]any{name: value}
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var w strategy.Wire
	if err := json.Unmarshal(text, &w); err != nil {
		return fmt.Errorf("read %s: %w", text, err)
	}
	_, err = w.Checked()
	return err
}

// with adds what is missing.
func with(value any, more map[string]any) any {
	m, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for k, v := range more {
		if _, set := m[k]; !set {
			m[k] = v
		}
	}
	return m
}

// TestQuantities: no definition lets a quantity in for which Kubernetes' parser would compute for minutes (hack/crdbounds), or that
// it cannot read; what it writes and people use goes in. On a program that lists the kind such an object would act as an attack.
func TestQuantities(t *testing.T) {
	t.Parallel()
	tried := 0
	for name, d := range current(t) {
		if strings.HasPrefix(name, "nodeslos.") {
			continue // whose amounts api/strategy reads (TestBounds), and never Kubernetes' parser
		}
		for _, v := range d.Spec.Versions {
			v.Schema.Root.walk("", func(path string, s *schema) {
				if s.kind() != "int-or-string" || s.Pattern == "" { // a percentage, no quantity
					return
				}
				tried++
				takes := regexp.MustCompile(s.Pattern)
				for _, text := range []string{"1e-99999999", "1E99999999", "1e-100", "1e1.5", "1e.5", strings.Repeat("9", 41), "0." + strings.Repeat("0", 41)} {
					if takes.MatchString(text) {
						t.Errorf("%s %s: %s takes %s", name, v.Name, path, text)
					}
				}
				for _, text := range []string{"1", "100m", "2Gi", "1E", "1e3", "1E18", "5e-1", "1n", "9223372036854775807", "0.000000001", "5.", ".5", "+1", "-1"} {
					if !takes.MatchString(text) {
						t.Errorf("%s %s: %s does not take %s", name, v.Name, path, text)
					}
				}
			})
		}
	}
	if tried < 50 {
		t.Errorf("%d quantities tried", tried)
	}
}
