"""All mistakes, by part, in the order of the page."""
import of_chapters
import of_devices
import of_engine
import of_museum
import of_networks
import of_readers

GROUPS = {"readers": of_readers.OF_EACH_KIND, **of_chapters.PARTS, **of_networks.PARTS, **of_engine.PARTS,
          **of_devices.PARTS, "museum": of_museum.ALL}
