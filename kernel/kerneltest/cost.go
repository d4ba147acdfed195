// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// costLines are what a disk's line says from the first write on, with the kernel's own figures for an ordinary SSD.
var costLines = map[string]string{
	"io.cost.qos":   "enable=0 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00",
	"io.cost.model": "ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940",
}

// cost is ioc_qos_write and ioc_cost_model_write (block/blk-iocost.c): a write changes the words that it names, to name a figure is ctrl=user, and
// under ctrl=auto all figures are the kernel's own. A line never goes away.
func cost(old, file, value string) (string, error) {
	file = strings.Replace(file, "blkio.", "io.", 1)
	device, change, _ := strings.Cut(value, " ")
	if !strings.Contains(device, ":") {
		return "", unix.EINVAL
	}
	lines := strings.Split(old, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, device+" ") })
	if at < 0 {
		at, lines = len(lines), append(lines, device+" "+costLines[file])
	}
	words := strings.Fields(lines[at])[1:]
	ctrl := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "ctrl=") })
	for w := range strings.FieldsSeq(change) {
		name, figure, _ := strings.Cut(w, "=")
		i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, name+"=") })
		shown, err := costFigure(name, figure)
		if i < 0 || err != nil {
			return "", unix.EINVAL
		}
		words[i] = name + "=" + shown
		if name != "enable" && name != "ctrl" && name != "model" {
			words[ctrl] = "ctrl=user"
		}
	}
	if words[ctrl] == "ctrl=auto" {
		own := strings.Fields(costLines[file])
		copy(words[ctrl:], own[len(own)-len(words[ctrl:]):])
	}
	lines[at] = device + " " + strings.Join(words, " ")
	return strings.Join(lines, "\n"), nil
}

// costFigure is what a read shows of a word: percentages have two decimals.
func costFigure(name, figure string) (string, error) {
	most := uint64(math.MaxInt64)
	switch name {
	case "ctrl", "model":
		if figure != "auto" && figure != "user" && figure != "linear" {
			return "", unix.EINVAL
		}
		return figure, nil
	case "rpct", "wpct", "min", "max":
		f, err := strconv.ParseFloat(figure, 64)
		if err != nil || f < 0 || strings.HasSuffix(name, "pct") && f > 100 {
			return "", unix.EINVAL
		}
		return fmt.Sprintf("%.2f", f), nil
	case "enable":
		most = 1
	}
	n, err := strconv.ParseUint(figure, 10, 64)
	if err != nil || n > most {
		return "", unix.EINVAL
	}
	return figure, nil
}
