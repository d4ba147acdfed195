// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package figure_test

import (
	"math"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"9.8 CPUs":                    figure.CPUs(9800),
		"1 CPU":                       figure.CPUs(1000),
		"0 CPUs":                      figure.CPUs(0),
		"-6.8 CPUs":                   figure.CPUs(-6800),
		"0.01":                        figure.Cores(9),
		"1 pod":                       figure.Count(1, "pod"),
		"0 pods":                      figure.Count(0, "pod"),
		"10.56 GiB":                   figure.Bytes(11338713661),
		"512 MiB":                     figure.Bytes(512 << 20),
		"1.5 KiB":                     figure.Bytes(1536),
		"17 B":                        figure.Bytes(17),
		"-2 TiB":                      figure.Bytes(-2 << 40),
		"81.25%":                      figure.Percent(0.8125),
		"104 GiB of 128 GiB (81.25%)": figure.BytesOf(104<<30, 128<<30),
		"28.8 of 32 CPUs (90%)":       figure.CoresOf(28800, 32000),
		"0%":                          figure.Percent(-0.00001),
		"?%":                          figure.Percent(unit.Fraction(math.NaN())),
		"250 ms":                      figure.Duration(250 * unit.Millisecond),
		"1.5 s":                       figure.Duration(1500 * unit.Millisecond),
		"90 s":                        figure.Duration(90 * unit.Second),
		"12 min":                      figure.Duration(12 * unit.Minute),
		"980000 µs":                   figure.Quota(980000),
		"none":                        figure.Quota(unit.Unlimited),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
