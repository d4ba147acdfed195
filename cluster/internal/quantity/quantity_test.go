// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quantity

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, place := range map[string]string{
		`{"cpu":"1","memory":"2Gi","a":"1e3","b":"1E-9","c":"2E","d":1e3,"e":null}`: "",
		`{"cpu":"1e-99999999"}`:                                           "cpu",
		`{"cpu":"1E-99999999"}`:                                           "cpu",
		`{"cpu":"1\u0065-99999999"}`:                                      "cpu",
		`{"cpu":" +.5e+99999999 "}`:                                       "cpu",
		`{"cpu":"1e-99999999","cpu":"1"}`:                                 "cpu",
		`{"a":{"cpu":"1"},"b":{"cpu":"` + strings.Repeat("9", 65) + `"}}`: "b.cpu",
		`{"cpu":-` + strings.Repeat("9", 65) + `}`:                        "cpu",
		`{"cpu":"0.` + strings.Repeat("0", 65) + `1Ki"}`:                  "cpu",
		`{"cpu":"` + strings.Repeat("9", 65) + `e1"}`:                     "cpu",
		`{"cpu":"` + strings.Repeat("9", 64) + `Ki","hash":"` + strings.Repeat("9", 65) + `abc"}`: "",
		`{"cpu":1e-99999999}`:                               "cpu",
		`{"spec":{"list":[{"x":"1"},{"x":"-1e-0001000"}]}}`: "spec.list[1].x",
		`"1e-1000"`: "",
		`{"note":"see 1e-99999999","hash":"9e1234f","id":"1e-99999999x","end":"1e"}`: "",
		`{"not json`: "", "[\x01": "", `[A`: "", `{"a":b`: "", `{"a" 1}`: "", `[1 2]`: "", `{"a":[}`: "",
		``: "",
	} {
		err := Check([]byte(text))
		refused := place != "" || text == `"1e-1000"`
		if errors.Is(err, ErrNumber) != refused || err != nil && !strings.HasPrefix(err.Error(), place+": ") {
			t.Errorf("%s: %v, want one about %q", text, err, place)
		}
	}
}

// What is nested deeper than anything is refused before it costs a stack.
func TestDepth(t *testing.T) {
	t.Parallel()
	for depth, refused := range map[int]bool{maxDepth: false, maxDepth + 1: true, 1 << 20: true} {
		if err := Check([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))); (err != nil) != refused {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	var list corev1.ResourceList
	if err := Unmarshal([]byte(`{"cpu":"1e3"}`), &list); err != nil || list.Cpu().Value() != 1000 {
		t.Errorf("%v, %v", list, err)
	}
	if err := Unmarshal([]byte(`{"cpu":"1e-99999999"}`), &list); !errors.Is(err, ErrNumber) {
		t.Errorf("a quantity that nobody can wait for: %v", err)
	}
	if err := Unmarshal([]byte(`{"cpu":"much"}`), &list); err == nil {
		t.Error("no quantity, and no error")
	}
}

// FuzzUnmarshal: whatever is written ends, and nothing else is refused than json.Unmarshal would refuse.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{`{"cpu":"1"}`, `{"cpu":"1e-99999999"}`, `{"cpu":"1e-999"}`, `{"cpu":-1E+0999999}`, `{"a":" 1e-9 "}`, `[]`, `null`, "[\x01", `{"a":b`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var list, plain corev1.ResourceList
		err := Unmarshal(data, &list)
		if errors.Is(err, ErrNumber) || err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		if want := json.Unmarshal(data, &plain); (err == nil) != (want == nil) {
			t.Errorf("%v, json.Unmarshal: %v", err, want)
		}
	})
}
