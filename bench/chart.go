package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is a picture of one measure by the number of workers, both axes
// logarithmic.
type chart struct {
	file, title, measure, yLabel string
	least                        float64 // what is less is drawn as this
}

var charts = []chart{
	{
		file: "bench-handover.svg", title: "Handing over one lock",
		measure: "handover_p50", yLabel: "release until the next has it, median (ms)", least: 0.01,
	},
	{
		file: "bench-waiting.svg", title: "Waiting for one lock that stays held",
		measure: "blocked_commands", yLabel: "Redis commands a second, in all", least: 0.1,
	},
}

// look is how a subject is drawn. Colours are told apart with any kind of
// colour blindness (Okabe and Ito); shapes tell them apart without colours.
type look struct {
	colour color.RGBA
	glyph  draw.GlyphDrawer
}

var looks = map[string]look{
	nameSidecar:     {color.RGBA{0x00, 0x72, 0xb2, 0xff}, draw.CircleGlyph{}},
	nameBareHandler: {color.RGBA{0x70, 0x70, 0x70, 0xff}, draw.CrossGlyph{}},
	nameRaw:         {color.RGBA{0xd5, 0x5e, 0x00, 0xff}, draw.SquareGlyph{}},
	nameRedsync:     {color.RGBA{0x00, 0x9e, 0x73, 0xff}, draw.TriangleGlyph{}},
	nameRedislock:   {color.RGBA{0xcc, 0x79, 0xa7, 0xff}, draw.BoxGlyph{}},
	nameRueidislock: {color.RGBA{0xb0, 0x85, 0x00, 0xff}, draw.PyramidGlyph{}},
}

// drawCharts writes the charts into a folder. A run without one of their
// sections is an error.
func (r *result) drawCharts(dir string) error {
	for _, c := range charts {
		p, err := c.draw(r)
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		if err := saveSVG(p, filepath.Join(dir, c.file)); err != nil {
			return err
		}
	}
	return nil
}

func saveSVG(p *plot.Plot, file string) error {
	drawing, err := p.WriterTo(18*vg.Centimeter, 11*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if _, err := drawing.WriteTo(&text); err != nil {
		return err
	}
	// Most readers lack the font; these are as wide.
	svg := bytes.ReplaceAll(text.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(file, svg, 0o644)
}

func (c chart) draw(r *result) (*plot.Plot, error) {
	p := c.empty(r)
	var subjects []string
	lines := map[string]plotter.XYs{}
	var counts []int
	for _, point := range r.Points {
		if point.Measure != c.measure {
			continue
		}
		if !slices.Contains(subjects, point.Subject) {
			subjects = append(subjects, point.Subject)
		}
		if !slices.Contains(counts, point.Workers) {
			counts = append(counts, point.Workers)
		}
		lines[point.Subject] = append(lines[point.Subject], plotter.XY{X: float64(point.Workers), Y: max(point.Value, c.least)})
	}
	if len(subjects) == 0 {
		return nil, fmt.Errorf("nothing has been measured of %s", c.measure)
	}
	for _, name := range subjects {
		line, dots, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return nil, err
		}
		look, known := looks[name]
		if !known {
			return nil, fmt.Errorf("no colour for %s", name)
		}
		line.Color, line.Width = look.colour, vg.Points(1.5)
		dots.Color, dots.Shape, dots.Radius = look.colour, look.glyph, vg.Points(3.5)
		if name == nameSidecar {
			line.Width = vg.Points(3)
		}
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	p.X.Tick.Marker = ticksAt(counts)
	p.Y.Min = math.Pow10(int(math.Floor(math.Log10(p.Y.Min))))
	p.Y.Max = math.Pow10(int(math.Ceil(math.Log10(p.Y.Max))))
	return p, nil
}

// empty is the plot without its lines. Its background is solid, so that it
// can be read on a dark page as well.
func (c chart) empty(r *result) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = fmt.Sprintf("%s (%d cores, Redis %s, %s)", c.title, r.Cores, r.Redis, r.Date)
	p.Title.TextStyle.Font = sans(12)
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = fmt.Sprintf("workers on one key, over %d sidecars or client objects", instances)
	p.Y.Label.Text = c.yLabel
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale = plot.LogScale{}
		axis.Label.TextStyle.Font = sans(10)
		axis.Tick.Label.Font = sans(10)
		axis.Label.Padding = vg.Points(4)
	}
	p.Y.Tick.Marker = decades{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xd8}, color.Gray{0xd8}
	p.Add(grid)
	p.Legend.TextStyle.Font = sans(10)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	return p
}

func sans(size float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)}
}

// ticksAt marks the numbers that were measured.
func ticksAt(counts []int) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, n := range counts {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	return ticks
}

// decades marks the powers of ten, in plain numbers.
type decades struct{}

// Ticks implements [plot.Ticker].
func (decades) Ticks(least, most float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(least, most)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'f', -1, 64)
		}
	}
	return ticks
}
