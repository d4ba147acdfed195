// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

func newEntryModel() *recommend.Model { return recommend.New(recommend.Default()) }

// trained is a history of days, with values all over.
func trained(days int) recommend.History {
	m := newEntryModel()
	rnd := rand.New(rand.NewPCG(5, 6))
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range days * 1440 {
		m.Learn(wall(at.Add(time.Duration(i)*time.Minute)), []recommend.Sample{{Container: "app", Usage: predict.Usage{
			CPU: unit.Got(rnd.ExpFloat64()), Memory: unit.Got(rnd.ExpFloat64() * (1 << 30)),
		}}})
	}
	return m.Histories()[0]
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for _, h := range []recommend.History{trained(9), {Container: "app"}} {
		text := formatHistory(&h)
		back, err := parseHistory("app", text)
		if err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("%v: %s\nhave %+v\nwant %+v", err, text, back, h)
		}
		if len(text) > 2<<10 {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	}
	for text, says := range map[string]string{
		"":                                    "1 words",
		"2 0 0 0 0 0 - 0 0 0 0 0 - 0 0":       `version "2"`,
		"1 0 0 0 0 0 - 0 0 0 0 0 - 0":         "14 words",
		"1 0 x 0 0 0 - 0 0 0 0 0 - 0 0":       `"x" cannot be read`,
		"1 0 0 0 0 0 1:2,1:3 0 0 0 0 0 - 0 0": `"1:3" cannot be read`,
		"1 0 0 0 0 0 -1:2 0 0 0 0 0 - 0 0":    `"-1:2" cannot be read`,
		"1 0 0 0 0 0 - 0 0 0 0 0 - 0 0" + strings.Repeat(" ", 9000): "want at most",
	} {
		if _, err := parseHistory("app", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80q: %v, want %q", text, err, says)
		}
	}
}

// FuzzHistory: a status that anybody may have written is no reason to fail, and what the model takes it can go on with.
func FuzzHistory(f *testing.F) {
	h := trained(2)
	f.Add(formatHistory(&h))
	f.Add("1 0 0 0 0 0 - 0 0 0 0 0 - 0 0")
	f.Add("1 1 2 3 4 5 0:1,157:10000 1 2 3 4 5 204:7 6 7")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHistory("app", text)
		if err != nil {
			return
		}
		m := newEntryModel()
		if m.Restore(h) != nil {
			return
		}
		now := max(h.CPU.Seen, h.Memory.Seen)
		for i := range 70 {
			m.Learn(now+predict.Wall(i)*predict.Wall(unit.Minute), []recommend.Sample{{Container: "app", Usage: predict.Usage{CPU: unit.Got(1.0), Memory: unit.Got(1.0 * (1 << 30))}}})
		}
		for _, a := range m.Advice() {
			if a.Lower.CPU > a.Target.CPU || a.Target.CPU > a.Upper.CPU || a.Lower.Memory > a.Target.Memory || a.Target.Memory > a.Upper.Memory || a.Lower.CPU < 0 || a.Lower.Memory < 0 {
				t.Errorf("%q: %+v", text, a)
			}
		}
	})
}
