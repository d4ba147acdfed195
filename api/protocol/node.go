// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"math"
	"strconv"
)

// SystemQoS is the annotation node.koordinator.sh/system-qos-resource: the CPUs of SYSTEM pods.
type SystemQoS struct {
	// CPUSet is a kernel list ("0-1,8").
	CPUSet string
	// Exclusive: nobody else may use them. It is true when the annotation does not say.
	Exclusive bool
}

// ParseSystemQoS reads {"cpuset":"0-1","cpusetExclusive":true}. An empty text is no set.
func ParseSystemQoS(s string) (SystemQoS, error) {
	if s == "" {
		return SystemQoS{}, nil
	}
	var wire struct {
		CPUSet    string `json:"cpuset"`
		Exclusive *bool  `json:"cpusetExclusive"`
	}
	if err := decode(s, &wire); err != nil {
		return SystemQoS{}, err
	}
	if wire.CPUSet == "" {
		return SystemQoS{}, nil
	}
	if err := CheckCPUList(wire.CPUSet); err != nil {
		return SystemQoS{}, fmt.Errorf("cpuset: %w", err)
	}
	return SystemQoS{CPUSet: wire.CPUSet, Exclusive: wire.Exclusive == nil || *wire.Exclusive}, nil
}

// maxNormalization bounds a ratio: no two CPUs of one cluster are further apart.
const maxNormalization = 100

// ParseNormalizationRatio reads node.koordinator.sh/cpu-normalization-ratio, "1.20", in hundredths: 120. Empty and "-1"
// are 0, off.
func ParseNormalizationRatio(s string) (hundredths int64, err error) {
	if s == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil, math.IsNaN(f):
		return 0, fmt.Errorf("%s is no number", quote(s))
	case f == -1:
		return 0, nil
	case f <= 0 || f > maxNormalization:
		return 0, fmt.Errorf("%s, want -1 or a ratio above 0, at most %d", quote(s), maxNormalization)
	}
	return int64(math.Round(f * 100)), nil
}
