// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

func TestParseSystemQoS(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]protocol.SystemQoS{
		"":                 {},
		`{}`:               {},
		`{"cpuset":"0-1"}`: {CPUSet: "0-1", Exclusive: true}, // exclusive unless it says otherwise
		`{"cpuset":"0-1","cpusetExclusive":false}`: {CPUSet: "0-1"},
	} {
		if got, err := protocol.ParseSystemQoS(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, part := range map[string]string{`{"cpuset":"1-0"}`: "cpuset", `[]`: "object", `{"cpuset":1}`: "cpuset"} {
		if got, err := protocol.ParseSystemQoS(text); err == nil || !strings.Contains(err.Error(), part) || got != (protocol.SystemQoS{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParseNodeReservation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]protocol.NodeReservation{
		"":                               {},
		`{}`:                             {},
		`{"resources":{"cpu":"1500m"}}`:  {MilliCPU: 1500},
		`{"resources":{"memory":"1Gi"}}`: {},
		`{"reservedCPUs":"0-1,8"}`:       {CPUs: "0-1,8"},
		`{"applyPolicy":"Default"}`:      {},
		`{"resources":{"cpu":4},"reservedCPUs":"0","applyPolicy":"ReservedCPUsOnly"}`: {CPUs: "0"},
	} {
		if got, err := protocol.ParseNodeReservation(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, part := range map[string]string{
		`{"reservedCPUs":"1-0"}`: "reservedCPUs", `[]`: "object", `{"reservedCPUs":1}`: "reservedCPUs", `{"resources":{"cpu":"-1"}}`: "negative",
	} {
		if got, err := protocol.ParseNodeReservation(text); err == nil || !strings.Contains(err.Error(), part) || got != (protocol.NodeReservation{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParseNormalizationRatio(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "-1": 0, "1.20": 120, "1": 100, "0.995": 100, "2.5": 250} {
		if got, err := protocol.ParseNormalizationRatio(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-2", "fast", "NaN", "Inf", "101", "1,2"} {
		if got, err := protocol.ParseNormalizationRatio(text); err == nil || got != 0 {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}
